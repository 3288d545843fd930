// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>
module shardmesh.torch_checkpointing;

import :same_value;

namespace shardmesh::torch_checkpointing {
namespace {

constexpr std::int64_t small_bytes = 1 << 20, slab_bytes = 1 << 24;

bool same_description(const tensor_entry& a, const tensor_entry& b) {
  return a.type == b.type && a.shape == b.shape && a.opaque_type == b.opaque_type && a.chunk_count == b.chunk_count;
}

// Compares the elements, several rows at a time.
result<bool> same_elements(const opened_chunk& a, const opened_chunk& b) {
  const extents& sizes = a.tensor.sizes;
  const std::int64_t row =
      sizes.empty() || sizes[0] == 0 ? 1 : std::max<std::int64_t>(1, box::whole(sizes).volume() / sizes[0]);
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, slab_bytes / (row * item_bytes(a.tensor.type)));
  const std::int64_t rows = sizes.empty() ? 1 : sizes[0];
  for (std::int64_t at = 0; at < rows; at += rows_at_once) {
    box part = box::whole(sizes);
    if (!sizes.empty()) part.offsets[0] = at, part.sizes[0] = std::min(rows_at_once, rows - at);
    const auto bytes = size_bytes(a.tensor.type, part.volume()).value_or(0);
    std::vector<std::byte> left(static_cast<std::size_t>(bytes)), right(left.size());
    const extents strides = contiguous_strides(part.sizes);
    SHARDMESH_TRY(read_box(*a.source, a.tensor, part, {left.data(), a.tensor.type, {}, part.sizes, strides}));
    SHARDMESH_TRY(read_box(*b.source, b.tensor, part, {right.data(), b.tensor.type, {}, part.sizes, strides}));
    if (left != right) return false;
  }
  return true;
}

std::optional<bool> by_checksum(const opened_chunk& a, const opened_chunk& b) {
  const bool alike = a.crc_length > 0 && a.crc_length == b.crc_length &&
                     a.tensor.storage_offset == b.tensor.storage_offset && a.tensor.strides == b.tensor.strides &&
                     a.tensor.swap_bytes == b.tensor.swap_bytes && a.tensor.conjugate == b.tensor.conjugate &&
                     a.tensor.negative == b.tensor.negative;
  if (!alike) return std::nullopt;
  if (a.crc32 == b.crc32) return true;
  // The differing bytes may be outside the view.
  const std::int64_t viewed = size_bytes(a.tensor.type, box::whole(a.tensor.sizes).volume()).value_or(0);
  return viewed == a.crc_length ? std::optional(false) : std::nullopt;
}

}  // namespace

result<std::optional<bool>> same_by_checksum(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                                             const tensor_entry& of_b) {
  if (!same_description(of_a, of_b)) return std::optional(false);
  if (of_a.chunk_count != 1) return std::optional<bool>();
  SHARDMESH_TRY(const auto left, a.open_chunk(of_a, of_a.first_chunk));
  SHARDMESH_TRY(const auto right, b.open_chunk(of_b, of_b.first_chunk));
  return by_checksum(*left, *right);
}

result<bool> same_tensor(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                         const tensor_entry& of_b) {
  if (!same_description(of_a, of_b)) return false;
  if (!of_a.opaque_type.empty()) {
    const auto index = [](const checkpoint_reader& reader, const tensor_entry& tensor) {
      return static_cast<std::size_t>(&tensor - reader.contents().tensors.data());
    };
    SHARDMESH_TRY(const auto left, a.content_of({true, index(a, of_a)}));
    SHARDMESH_TRY(const auto right, b.content_of({true, index(b, of_b)}));
    return left && right && *left == *right;
  }
  if (of_a.chunk_count != 1) return false;
  SHARDMESH_TRY(const auto left, a.open_chunk(of_a, of_a.first_chunk));
  SHARDMESH_TRY(const auto right, b.open_chunk(of_b, of_b.first_chunk));
  const auto known = by_checksum(*left, *right);
  if (known && (!*known || left->crc_length > small_bytes)) return *known;
  return same_elements(*left, *right);
}

result<bool> same_object(checkpoint_reader& a, std::size_t of_a, checkpoint_reader& b, std::size_t of_b) {
  SHARDMESH_TRY(const auto left, a.content_of({false, of_a}));
  SHARDMESH_TRY(const auto right, b.content_of({false, of_b}));
  return left && right && *left == *right;
}

}  // namespace shardmesh::torch_checkpointing
