// SPDX-License-Identifier: Apache-2.0
module;
#include <cstdint>
#include <string>
module shardmesh.sharding;

namespace shardmesh::detail {

result<void> check_member(const layout& l, std::int32_t rank) {
  if (l.mesh().coordinate_of(rank)) return {};
  return fail(errc::invalid_argument, "this rank is not in the mesh")
      .with_rank(rank)
      .with_values("a rank of mesh " + to_string(l.mesh()), std::to_string(rank))
      .with_hint("dtensor::make(layout, rank, {}) is the tensor of a rank that holds nothing");
}

result<void> check_local_tensor(const layout& l, std::int32_t rank, const extents* local_sizes) {
  const bool is_member = l.mesh().coordinate_of(rank).has_value();
  if (!is_member && local_sizes)
    return fail(errc::invalid_argument, "a rank outside the mesh holds no part of the tensor").with_rank(rank);
  if (!is_member) return {};
  if (!local_sizes)
    return fail(errc::invalid_argument, "a rank of the mesh needs its part of the tensor, also an empty one")
        .with_rank(rank);
  const extents expected = l.local_shape(rank);
  if (*local_sizes == expected) return {};
  return fail(errc::shape_mismatch, "the local tensor does not have the layout's local shape for " + to_string(l))
      .with_rank(rank)
      .with_values(to_string(expected), to_string(*local_sizes));
}

}  // namespace shardmesh::detail
