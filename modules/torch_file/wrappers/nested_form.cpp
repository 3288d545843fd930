// SPDX-License-Identifier: Apache-2.0
// Nested tensors: strided, and jagged.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
module shardmesh.torch_file;

import :form_reader;

namespace shardmesh::torch_file {

// A buffer; sizes and strides [tensors, dimensions], offsets [tensors].
result<void> form_reader::read_nested() {
  made_.family = wrapper_family::nested;
  SHARDMESH_TRY(expect({"buffer", "sizes", "strides", "offsets"}));
  for (const std::string_view name : {"sizes", "strides", "offsets"}) SHARDMESH_TRY(check_type(name, {dtype::int64}));
  made_.size = made_.find("buffer")->shape;
  made_.element_type = made_.find("buffer")->type;
  const extents &sizes = made_.find("sizes")->shape, &offsets = made_.find("offsets")->shape;
  if (made_.size.rank() != 1) return misfit("buffer", {0});
  // Without tensors, PyTorch stores sizes without dimensions.
  const bool is_empty = offsets.rank() == 1 && offsets[0] == 0;
  if (offsets.rank() != 1 || (!is_empty && (sizes.rank() != 2 || sizes[0] != offsets[0])))
    return misfit("offsets", sizes);
  if (made_.find("strides")->shape != sizes) return misfit("strides", sizes);
  return {};
}

// The values' dimension `ragged_dimension` - 1 is cut at the offsets. With lengths, the parts may leave gaps.
result<void> form_reader::read_jagged() {
  made_.family = wrapper_family::jagged;
  SHARDMESH_TRY(expect({"values", "offsets"}, "lengths"));
  made_.size = made_.find("values")->shape;
  made_.element_type = made_.find("values")->type;
  SHARDMESH_TRY(check_type("offsets", {dtype::int64, dtype::int32}));
  const auto ragged = given_.find("ragged_dimension").as_int();
  if (!ragged || *ragged < 1 || *ragged > static_cast<std::int64_t>(made_.size.rank()))
    return bad("its ragged dimension is out of range");
  made_.ragged_dimension = *ragged;
  const extents& offsets = made_.find("offsets")->shape;
  if (offsets.rank() != 1 || offsets[0] < 1) return misfit("offsets", {1});
  if (const component_form* const lengths = made_.find("lengths")) {
    SHARDMESH_TRY(check_type("lengths", {made_.find("offsets")->type}));
    if (lengths->shape != extents{offsets[0] - 1}) return misfit("lengths", {offsets[0] - 1});
  }
  made_.shortest = given_.find("shortest").as_int();
  made_.longest = given_.find("longest").as_int();
  if (made_.shortest.value_or(0) < 0 || made_.longest.value_or(0) < 0) return bad("a length is negative");
  made_.is_parameter = made_.parameter.has_value();
  if (made_.parameter) made_.requires_grad = *std::exchange(made_.parameter, std::nullopt);
  return {};
}

}  // namespace shardmesh::torch_file
