// SPDX-License-Identifier: Apache-2.0
// The host's backend: each item is a call of a tuned kernel. Call order stands in for streams and events.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.kernels;

namespace shardmesh {
namespace {

constexpr std::size_t alignment = 64;

// An item as the views of a kernel, without their addresses.
struct host_work {
  batch_item item;
  tensor_view to;
  const_tensor_view from;
};

struct host_batch final : prepared_batch {
  std::size_t items() const override { return work.size(); }
  std::vector<host_work> work;  // in phase order
};

host_work work_of(const batch_item& item) {
  host_work made{item, {nullptr, item.to_type, {}, {}, {}}, {nullptr, item.from_type, {}, {}, {}}};
  for (int d = 0; d < item.rank; ++d) {
    made.to.sizes.push_back(item.loops[d].size);
    made.from.sizes.push_back(item.loops[d].size);
    made.to.strides.push_back(item.loops[d].to / item_bytes(item.to_type));
    made.from.strides.push_back(item.loops[d].from / item_bytes(item.from_type));
  }
  return made;
}

// Whether elements are copied onto themselves.
bool stays_in_place(const tensor_view& to, const const_tensor_view& from) {
  return to.data == from.data && to.type == from.type && to.strides == from.strides;
}

result<void> carry_out(const batch_item& item, const tensor_view& to, const const_tensor_view& from) {
  switch (item.op) {
    case batch_op::copy:
      return stays_in_place(to, from) ? result<void>() : copy(to, from);
    case batch_op::accumulate:
      return accumulate(to, from, item.reduction);
    case batch_op::fill:
      return fill_identity(to, item.reduction);
    case batch_op::scale:
      return scale(to, item.factor);
    case batch_op::divide:
      return divide(to, item.factor);
  }
  return {};
}

struct host_event final : device_event {
  result<bool> done() override { return true; }
  result<void> wait() override { return {}; }
  result<void> hold(stream_ref) override { return {}; }
};

class host final : public kernel_backend {
 public:
  std::string_view name() const override { return "host"; }
  bool reaches(device where) const override { return where.type == device_type::cpu; }

  result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref) override {
    if (size_bytes <= 0) return device_buffer(nullptr, 0, where, nullptr);
    auto* const memory = static_cast<std::byte*>(
        ::operator new(static_cast<std::size_t>(size_bytes), std::align_val_t(alignment), std::nothrow));
    if (memory == nullptr)
      return fail(errc::no_memory, "cannot allocate " + human_bytes(size_bytes) + " of memory on " + to_string(where));
    return device_buffer(memory, size_bytes, where, std::shared_ptr<void>(memory, [](void* bytes) {
                           ::operator delete(bytes, std::align_val_t(alignment));
                         }));
  }
  result<device_buffer> allocate_staging(std::int64_t size_bytes, device) override {
    return allocate(size_bytes, {}, {});
  }

  result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device) override {
    auto made = std::make_unique<host_batch>();
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return items[a].phase != items[b].phase ? items[a].phase < items[b].phase : a < b;
    });
    for (const std::size_t i : order) made->work.push_back(work_of(items[i]));
    return std::unique_ptr<prepared_batch>(std::move(made));
  }

  result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref) override {
    for (host_work& one : static_cast<host_batch&>(batch).work) {
      const batch_item& item = one.item;
      tensor_view to = one.to;
      to.data = bases.to[item.to_slot] + item.to_offset;
      if (item.op == batch_op::copy || item.op == batch_op::accumulate) {
        const_tensor_view from = one.from;
        from.data = bases.from[item.from_slot] + item.from_offset;
        SHARDMESH_TRY(carry_out(item, to, from));
      } else {
        SHARDMESH_TRY(carry_out(item, to, to));
      }
    }
    return {};
  }

  result<void> copy_across(std::byte* to, device, const std::byte* from, device, std::int64_t size_bytes,
                           stream_ref) override {
    if (size_bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(size_bytes));
    return {};
  }

  result<std::unique_ptr<device_event>> record(device, stream_ref) override {
    return std::unique_ptr<device_event>(std::make_unique<host_event>());
  }
};

}  // namespace

std::shared_ptr<kernel_backend> host_backend() {
  static const auto only = std::make_shared<host>();
  return only;
}

}  // namespace shardmesh
