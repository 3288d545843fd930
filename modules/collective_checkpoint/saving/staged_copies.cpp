// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.kernels;
import :staged_copies;

namespace shardmesh {

result<void> staged_copies::take(std::span<const_tensor_view> views, const staging_pool& pool, std::int32_t rank,
                                 const call_options& call) {
  SHARDMESH_TRY(const std::vector<tensor_view> staged, memory_for(views, pool, rank, call));
  for (std::size_t i = 0; i < staged.size(); ++i) {
    SHARDMESH_TRY(copy_between(staged[i], views[i]));
    views[i] = staged[i];
  }
  return {};
}

result<std::vector<tensor_view>> staged_copies::memory_for(std::span<const const_tensor_view> views,
                                                           const staging_pool& pool, std::int32_t rank,
                                                           const call_options& call) {
  std::vector<tensor_view> made;
  if (pool.is_none()) {
    for (const const_tensor_view& view : views) {
      SHARDMESH_TRY(host_tensor copy, host_tensor::make(view.type, view.sizes));
      made.push_back(view_of(own_.emplace_back(std::move(copy))));  // a move of the tensor keeps its memory
    }
    return made;
  }
  constexpr std::int64_t alignment = 64;
  std::vector<std::int64_t> begins;
  std::int64_t total = 0;
  for (const const_tensor_view& view : views) {
    begins.push_back(total);
    total += (size_bytes(view.type, numel(view)).value() + alignment - 1) / alignment * alignment;
  }
  SHARDMESH_TRY(pooled_, staging_lease::take(pool, total, rank, call));
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const const_tensor_view& view = views[i];
    made.push_back({pooled_.bytes().data() + begins[i], view.type, {}, view.sizes, contiguous_strides(view.sizes)});
  }
  return made;
}

}  // namespace shardmesh
