// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :compared_entries;
import :opaque_comparison;
import :stored_items;

namespace shardmesh {

result<std::optional<key_difference>> compare_opaque_tensors(const diff_side& left, const diff_entry& a,
                                                             const diff_side& right, const diff_entry& b) {
  const tensor_entry& of_left = tensor_of(left, a);
  const tensor_entry& of_right = tensor_of(right, b);
  std::optional<key_difference> found;
  if (of_left.shape.rank() > 0 && of_right.shape.rank() > 0 && of_left.shape != of_right.shape) {
    found = difference_at(a.key, difference_kind::shape,
                          fmt::format("shape {} against {}", to_string(of_left.shape), to_string(of_right.shape)));
    return found;
  }
  SHARDMESH_TRY(const auto left_content, of_side(left, left.reader.content_of({true, a.index})));
  SHARDMESH_TRY(const auto right_content, of_side(right, right.reader.content_of({true, b.index})));
  if (!left_content || !right_content)
    return fail(errc::unsupported,
                fmt::format("tensors of {} cannot be compared: their values are not read", of_left.opaque_type))
        .with_key(a.key)
        .with_hint("leave the tensor out");
  bool equal = *left_content == *right_content;
  if (of_left.chunk_count > 1 || of_right.chunk_count > 1) {
    equal = boxes_of(left.reader.contents(), of_left) == boxes_of(right.reader.contents(), of_right);
    for (std::int32_t i = 0; equal && i < of_left.chunk_count; ++i) {
      SHARDMESH_TRY(const auto l, of_side(left, left.reader.chunk_archive(of_left, of_left.first_chunk + i)));
      SHARDMESH_TRY(const auto r, of_side(right, right.reader.chunk_archive(of_right, of_right.first_chunk + i)));
      equal = l == r;
    }
  }
  if (!equal) found = difference_at(a.key, difference_kind::values, "the stored bytes of an opaque tensor differ");
  return found;
}

}  // namespace shardmesh
