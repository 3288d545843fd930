// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
module shardmesh.checkpoint_core;

import :box_ranges;

namespace shardmesh {

covering cover(const stored_tensor& tensor, const box& part) {
  const std::int64_t item = item_bytes(tensor.type);
  std::int64_t first = tensor.storage_offset;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < part.rank(); ++d) {
    if (part.sizes[d] == 0) return {};
    first += part.offsets[d] * tensor.strides[d];
    last += (part.sizes[d] - 1) * tensor.strides[d];
  }
  return {first * item, (last + 1) * item};
}

std::size_t outermost(const stored_tensor& tensor, const box& part) {
  std::size_t best = 0;
  std::int64_t reach = -1;
  for (std::size_t d = 0; d < part.rank(); ++d)
    if (part.sizes[d] > 1 && tensor.strides[d] > reach) {
      best = d;
      reach = tensor.strides[d];
    }
  return best;
}

bool is_row_major(const stored_tensor& tensor, const box& part) {
  return is_contiguous(part.sizes, tensor.strides);
}

bool is_plain(const stored_tensor& tensor, const tensor_view& to) {
  return to.type == tensor.type && !tensor.swap_bytes && !tensor.conjugate && !tensor.negative;
}

result<void> copy_staged(const stored_tensor& tensor, std::span<std::byte> staged, const box& part,
                         const tensor_view& to) {
  const const_tensor_view from{staged.data(), tensor.type, {}, part.sizes, tensor.strides};
  // Transforms the covering range as a whole: a view may repeat an element, whose bytes must not be swapped twice.
  const auto elements = static_cast<std::int64_t>(staged.size()) / item_bytes(tensor.type);
  const tensor_view all{staged.data(), tensor.type, {}, {elements}, {1}};
  if (tensor.swap_bytes) SHARDMESH_TRY(byte_swap(all));
  if (tensor.conjugate) SHARDMESH_TRY(conjugate(all));
  if (tensor.negative) SHARDMESH_TRY(negate(all));
  return copy(to, from);
}

}  // namespace shardmesh
