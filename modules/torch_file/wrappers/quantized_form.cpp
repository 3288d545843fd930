// SPDX-License-Identifier: Apache-2.0
// Quantized tensors of PyTorch.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
module shardmesh.torch_file;

import :form_reader;

namespace shardmesh::torch_file {

// int_repr, and the scales and zero points of its integers, as numbers or tensors.
result<void> form_reader::read_quantized() {
  made_.family = wrapper_family::quantized;
  const bool by_channel = made_.type == "torch.per_channel_affine";
  if (by_channel)
    SHARDMESH_TRY(expect({"int_repr", "scales", "zero_points"}));
  else
    SHARDMESH_TRY(expect({"int_repr"}));
  made_.quantized = find_quantized_dtype(given_.find("dtype").text().value_or(""));
  if (made_.quantized == nullptr) return bad("its dtype is not a quantized one");
  SHARDMESH_TRY(check_type("int_repr", {made_.quantized->stored}));
  made_.size = made_.find("int_repr")->shape;
  if (!by_channel) {
    made_.scale = given_.find("scale");
    made_.zero_point = given_.find("zero_point");
    if (!made_.scale.as_float() || !made_.zero_point.as_int()) return bad("its scale or zero point is not a number");
    return {};
  }
  made_.axis = given_.find("axis").as_int().value_or(-1);
  if (made_.axis < 0 || made_.axis >= static_cast<std::int64_t>(made_.size.rank()))
    return bad("its axis is not one of its dimensions");
  SHARDMESH_TRY(check_type("scales", {dtype::float64, dtype::float32}));
  const bool in_floats = made_.find("scales")->type == dtype::float32;
  SHARDMESH_TRY(check_type("zero_points", {in_floats ? dtype::float32 : dtype::int64}));
  const extents expected{made_.size[static_cast<std::size_t>(made_.axis)]};
  for (const std::string_view name : {"scales", "zero_points"})
    if (made_.find(name)->shape != expected) return misfit(name, expected);
  return {};
}

}  // namespace shardmesh::torch_file
