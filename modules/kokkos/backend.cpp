// SPDX-License-Identifier: Apache-2.0
// The Kokkos backend. Work on host memory runs in Kokkos's host execution space, in call order. Work on the memory of
// Kokkos's device runs on that device's streams.
module;
#include "device.hpp"
#include "engine.hpp"

#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.kokkos;

namespace shardmesh {
namespace {

struct kokkos_host_batch final : prepared_batch {
  std::size_t items() const override { return kokkos_engine::items_of(*tables); }
  kokkos_engine::host_batch_pointer tables;
};
struct kokkos_device_batch final : prepared_batch {
  std::size_t items() const override { return kokkos_engine::items_of(*tables); }
  kokkos_engine::device_batch_pointer tables;
};

result<void> check_device(const std::string& problem, device where, errc code = errc::unsupported) {
  if (problem.empty()) return {};
  return fail(code, problem + " (" + to_string(where) + ")");
}

class kokkos_event final : public device_event {
 public:
  kokkos_event(void* event, device where) : event_(event), where_(where) {}
  kokkos_event(const kokkos_event&) = delete;
  kokkos_event& operator=(const kokkos_event&) = delete;
  ~kokkos_event() override { kokkos_engine::destroy_on_device(event_); }
  result<bool> done() override {
    bool is_done = false;
    SHARDMESH_TRY(check_device(kokkos_engine::is_done_on_device(event_, is_done), where_));
    return is_done;
  }
  result<void> wait() override { return check_device(kokkos_engine::wait_on_device(event_), where_); }
  result<void> hold(stream_ref stream) override {
    return check_device(kokkos_engine::hold_on_device(event_, stream.handle), where_);
  }

 private:
  void* event_;
  device where_;
};

class kokkos final : public kernel_backend {
 public:
  kokkos() : name_("kokkos (" + std::string(kokkos_engine::host_space())) {
    if (const char* const space = kokkos_engine::device_space()) {
      name_ += std::string(", ") + space;
      device_ = {std::string_view(space) == "HIP" ? device_type::hip : device_type::cuda,
                 static_cast<std::int16_t>(kokkos_engine::device_number())};
    }
    name_ += ")";
  }
  std::string_view name() const override { return name_; }
  bool reaches(device where) const override {
    if (where.type == device_type::cpu) return true;
    return device_.type != device_type::cpu && where.type == device_.type &&
           (where.index == device_.index || where.index == -1);
  }

  // Host memory comes from the host backend: Kokkos would return the same kind of memory, with bookkeeping on top.
  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) override {
    if (where.type == device_type::cpu) return host_->allocate(size_bytes, where, stream);
    SHARDMESH_TRY(check_reached(where));
    if (size_bytes <= 0) return device_buffer(nullptr, 0, where, nullptr);
    void* memory = nullptr;
    const std::string problem = kokkos_engine::allocate_on_device(size_bytes, stream.handle, memory);
    if (!problem.empty())
      return fail(errc::no_memory,
                  "cannot allocate " + human_bytes(size_bytes) + " on " + to_string(where) + ": " + problem);
    return device_buffer(
        static_cast<std::byte*>(memory), size_bytes, where,
        std::shared_ptr<void>(memory, [stream](void* bytes) { kokkos_engine::free_on_device(bytes, stream.handle); }));
  }
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) override {
    if (where.type == device_type::cpu || size_bytes <= 0) return host_->allocate_staging(size_bytes, where);
    void* memory = nullptr;
    SHARDMESH_TRY(check_device(kokkos_engine::allocate_pinned(size_bytes, memory), where, errc::no_memory));
    return device_buffer(static_cast<std::byte*>(memory), size_bytes, {},
                         std::shared_ptr<void>(memory, &kokkos_engine::free_pinned));
  }

  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device where) override {
    SHARDMESH_TRY(check_runs(where));
    SHARDMESH_TRY(check_reached(where));
    for (const batch_item& item : items)
      if (!kokkos_engine::has_kernel(item))
        return fail(errc::unsupported, name_ + " has no kernel for these dtypes on " + to_string(where))
            .with_values("dtypes of numbers", std::string(shardmesh::name(item.from_type)) + " to " +
                                                  std::string(shardmesh::name(item.to_type)));
    if (where.type == device_type::cpu) {
      auto made = std::make_unique<kokkos_host_batch>();
      made->tables = kokkos_engine::prepare_on_host(items.data(), items.size());
      return std::unique_ptr<prepared_batch>(std::move(made));
    }
    auto made = std::make_unique<kokkos_device_batch>();
    SHARDMESH_TRY(check_device(kokkos_engine::prepare_on_device(items.data(), items.size(), made->tables), where));
    return std::unique_ptr<prepared_batch>(std::move(made));
  }

  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref stream) override {
    SHARDMESH_TRY(check_runs({}));
    if (auto* const here = dynamic_cast<kokkos_host_batch*>(&batch)) {
      kokkos_engine::run_on_host(*here->tables, bases.to.data(), bases.from.data());
      return {};
    }
    const auto& there = static_cast<kokkos_device_batch&>(batch);
    return check_device(kokkos_engine::run_on_device(*there.tables, bases.to.data(), bases.from.data(), stream.handle),
                        device_);
  }

  result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                           std::int64_t size_bytes, stream_ref stream) override {
    if (to_device.type == device_type::cpu && from_device.type == device_type::cpu)
      return host_->copy_across(to, to_device, from, from_device, size_bytes, stream);
    SHARDMESH_TRY(check_reached(to_device));
    SHARDMESH_TRY(check_reached(from_device));
    return check_device(kokkos_engine::copy_on_device(to, from, size_bytes, stream.handle), device_);
  }
  result<std::unique_ptr<device_event>> record(device where, stream_ref stream) override {
    if (where.type == device_type::cpu) return host_->record(where, stream);
    SHARDMESH_TRY(check_reached(where));
    void* event = nullptr;
    SHARDMESH_TRY(check_device(kokkos_engine::record_on_device(stream.handle, event), where));
    return std::unique_ptr<device_event>(std::make_unique<kokkos_event>(event, where));
  }

 private:
  result<void> check_runs(device where) const {
    if (kokkos_engine::is_initialised()) return {};
    return fail(errc::unsupported, name_ + " cannot run a batch on " + to_string(where) + ": Kokkos was finalised")
        .with_hint("keep the kokkos_scope alive as long as the batches that it prepared");
  }
  result<void> check_reached(device where) const {
    if (reaches(where)) return {};
    return fail(errc::unsupported, name_ + " does not reach memory on " + to_string(where));
  }

  std::string name_;
  device device_;  // of type cpu if Kokkos has no device
  std::shared_ptr<kernel_backend> host_ = host_backend();
};

}  // namespace

result<std::shared_ptr<kernel_backend>> kokkos_backend() {
  if (!kokkos_engine::is_initialised())
    return kokkos_engine::is_finalised()
               ? fail(errc::unsupported, "Kokkos was finalised and cannot be initialised again in this process")
               : fail(errc::unsupported, "Kokkos is not initialised").with_hint("open a kokkos_scope");
  static const std::shared_ptr<kernel_backend> only = std::make_shared<kokkos>();
  return only;
}

}  // namespace shardmesh
