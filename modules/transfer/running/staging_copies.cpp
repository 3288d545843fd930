// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :staging_copies;

namespace shardmesh {

result<tensor_view> staging_copies::make(const const_tensor_view& slot, device memory, bool is_pulled) {
  const bool on_host = memory.type == device_type::cpu;
  SHARDMESH_TRY(const auto backend, backend_for(on_host ? slot.where : memory));
  const std::int64_t size_bytes = (numel(slot) * bits(slot.type) + 7) / 8;
  SHARDMESH_TRY(device_buffer made, on_host ? backend->allocate_staging(size_bytes, slot.where)
                                            : backend->allocate(size_bytes, memory, {}));
  if (!on_host) {  // any stream may use it from now on
    SHARDMESH_TRY(const auto allocated, backend->record(memory, {}));
    SHARDMESH_TRY(allocated->wait());
  }
  const tensor_view copy{made.data(), slot.type, memory, slot.sizes, contiguous_strides(slot.sizes)};
  copies_.push_back({slot, std::nullopt, copy, is_pulled, std::move(made)});
  return copy;
}

result<const_tensor_view> staging_copies::of_source(const const_tensor_view& slot, device memory) {
  SHARDMESH_TRY(const tensor_view copy, make(slot, memory, true));
  return const_tensor_view(copy);
}

result<tensor_view> staging_copies::of_destination(const tensor_view& slot, device memory, bool is_written_whole) {
  SHARDMESH_TRY(const tensor_view copy, make(slot, memory, !is_written_whole));
  copies_.back().written = slot;
  return copy;
}

result<void> staging_copies::pull(const call_options& call) const {
  for (const slot_copy& one : copies_)
    if (one.is_pulled) SHARDMESH_TRY(copy_between(one.copy, one.slot, call));
  return {};
}

result<void> staging_copies::push(const call_options& call) const {
  for (const slot_copy& one : copies_)
    if (one.written) SHARDMESH_TRY(copy_between(*one.written, one.copy, call));
  return {};
}

}  // namespace shardmesh
