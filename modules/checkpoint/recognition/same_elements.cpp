// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
module shardmesh.checkpoint;

import :same_elements;

namespace shardmesh {
namespace {

bool is_same_view(const stored_tensor& a, const stored_tensor& b) {
  return a.size_bytes == b.size_bytes && a.strides == b.strides && a.storage_offset == b.storage_offset &&
         a.swap_bytes == b.swap_bytes && a.conjugate == b.conjugate && a.negative == b.negative;
}

}  // namespace

result<bool> have_same_elements(const opened_chunk& a, const opened_chunk& b) {
  constexpr std::int64_t slab_bytes = 8 << 20;
  const dtype type = a.tensor.type;
  if (a.crc32 != 0 && a.crc32 == b.crc32 && a.crc_length == b.crc_length && is_same_view(a.tensor, b.tensor))
    return true;
  slab_walk walk(box::whole(a.tensor.sizes), slab_bytes / std::max<std::int64_t>(1, item_bytes(type)));
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(host_tensor left, host_tensor::make(type, slab->sizes));
    SHARDMESH_TRY(host_tensor right, host_tensor::make(type, slab->sizes));
    SHARDMESH_TRY(read_box(*a.source, a.tensor, *slab, adapter<host_tensor>::view(left)));
    SHARDMESH_TRY(read_box(*b.source, b.tensor, *slab, adapter<host_tensor>::view(right)));
    if (!std::ranges::equal(left.bytes(), right.bytes())) return false;
  }
  return true;
}

result<bool> have_same_content(checkpoint_reader& a, const whole_entry& entry, checkpoint_reader& b,
                               const whole_entry& other) {
  if (&a == &b && entry.is_tensor == other.is_tensor && entry.index == other.index) return true;
  SHARDMESH_TRY(const auto left, a.content_of(entry));
  SHARDMESH_TRY(const auto right, b.content_of(other));
  return left && right && *left == *right;
}

}  // namespace shardmesh
