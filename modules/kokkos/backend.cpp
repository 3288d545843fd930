// SPDX-License-Identifier: Apache-2.0
// The backend: host memory through Kokkos's host execution space, in the order of the calls.
module;
#include "engine.hpp"

#include <try.hpp>

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

struct kokkos_batch final : prepared_batch {
  std::size_t items() const override { return kokkos_engine::items_of(*tables); }
  kokkos_engine::host_batch_pointer tables;
};

class kokkos final : public kernel_backend {
 public:
  kokkos() : name_("kokkos (" + std::string(kokkos_engine::host_space()) + ")") {}
  std::string_view name() const override { return name_; }
  bool reaches(device where) const override { return where.type == device_type::cpu; }

  // Host memory is the host's: Kokkos's own would be the same bytes, behind its bookkeeping.
  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) override {
    return host_->allocate(size_bytes, where, stream);
  }
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) override {
    return host_->allocate_staging(size_bytes, where);
  }

  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device where) override {
    SHARDMESH_CHECK(check_runs(where));
    for (const batch_item& item : items)
      if (!kokkos_engine::has_kernel(item))
        return fail(errc::unsupported, name_ + " has no kernel for an item on " + to_string(where))
            .with_values("dtypes with values", std::string(shardmesh::name(item.from_type)) + " to " +
                                                   std::string(shardmesh::name(item.to_type)));
    auto made = std::make_unique<kokkos_batch>();
    made->tables = kokkos_engine::prepare_on_host(items.data(), items.size());
    return std::unique_ptr<prepared_batch>(std::move(made));
  }

  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref) override {
    SHARDMESH_CHECK(check_runs({}));
    kokkos_engine::run_on_host(*static_cast<kokkos_batch&>(batch).tables, bases.to.data(), bases.from.data());
    return {};
  }

  result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                           std::int64_t size_bytes, stream_ref stream) override {
    return host_->copy_across(to, to_device, from, from_device, size_bytes, stream);
  }
  result<std::unique_ptr<device_event>> record(device where, stream_ref stream) override {
    return host_->record(where, stream);
  }

 private:
  result<void> check_runs(device where) const {
    if (kokkos_engine::is_initialised()) return {};
    return fail(errc::unsupported, name_ + " cannot run a batch on " + to_string(where) + ": Kokkos has ended")
        .with_hint("keep the kokkos_scope as long as what it has prepared");
  }

  std::string name_;
  std::shared_ptr<kernel_backend> host_ = host_backend();
};

}  // namespace

result<std::shared_ptr<kernel_backend>> kokkos_backend() {
  if (!kokkos_engine::is_initialised())
    return fail(errc::unsupported, kokkos_engine::is_finalised() ? "Kokkos has ended" : "Kokkos has not been started")
        .with_hint("open a kokkos_scope");
  static const std::shared_ptr<kernel_backend> only = std::make_shared<kokkos>();
  return only;
}

}  // namespace shardmesh
