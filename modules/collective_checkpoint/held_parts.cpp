// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.collective_checkpoint;

namespace shardmesh::detail {
namespace {

result<void> check_part(const const_local_state_tensor& tensor, const const_local_part& part) {
  if (part.where.rank() != tensor.shape.rank() || !is_well_formed(part.where) ||
      !lies_within(part.where, box::whole(tensor.shape)))
    return fail(errc::out_of_bounds, "a part extends beyond the tensor")
        .with_values("a box within " + to_string(tensor.shape), to_string(part.where));
  if (part.memory.sizes != part.where.sizes)
    return fail(errc::shape_mismatch, "the memory does not have the sizes of its box")
        .with_values(to_string(part.where.sizes), to_string(part.memory.sizes));
  if (part.memory.type != tensor.type)
    return fail(errc::dtype_mismatch, "the memory has a different dtype than the tensor")
        .with_values(std::string(name(tensor.type)), std::string(name(part.memory.type)));
  SHARDMESH_TRY(check_reachable(part.memory));
  if (part.memory.data == nullptr && !part.where.is_empty())
    return fail(errc::invalid_argument, "the part has no memory");
  return {};
}

result<void> check_parts_of(const const_local_state_tensor& tensor) {
  if (tensor.type == dtype::undefined) return fail(errc::dtype_mismatch, "the dtype is undefined");
  const auto volume = checked_volume(tensor.shape);
  if (!volume || !size_bytes(tensor.type, *volume))
    return fail(errc::overflow, "no tensor can have this shape").with_values("", to_string(tensor.shape));
  std::vector<const box*> boxes;
  for (const const_local_part& part : tensor.parts) {
    if (auto checked = check_part(tensor, part); !checked) return std::move(checked).error().with_box(part.where);
    if (!part.where.is_empty()) boxes.push_back(&part.where);
  }
  std::sort(boxes.begin(), boxes.end(), [](const box* a, const box* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(boxes.begin(), boxes.end(), [](const box* a, const box* b) { return *a == *b; });
  if (twice != boxes.end()) return fail(errc::overlap, "the rank has this box twice").with_box(**twice);
  return {};
}

}  // namespace

result<void> check_held(const const_local_state& state) {
  for (const const_local_state_tensor& tensor : state.tensors)
    if (auto checked = check_parts_of(tensor); !checked)
      return std::move(checked).error().with_key(dotted(tensor.where));
  return {};
}

}  // namespace shardmesh::detail
