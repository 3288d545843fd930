// SPDX-License-Identifier: Apache-2.0
// Resharding makes new tensors, so the adapter must be able to make them.
// says: resharding makes new tensors: give adapter<T> an allocate(dtype, sizes, device)
#include <shardmesh/adapter.hpp>

import shardmesh.sharding;

struct view_only {};
template <>
struct shardmesh::adapter<view_only> {
  static tensor_view view(const view_only&) { return {}; }
};
void use(const shardmesh::sharded_tensor<view_only>& tensor, shardmesh::any_communicator& comm) {
  static_cast<void>(shardmesh::reshard(tensor, shardmesh::sharding_spec(), comm));
}
int main() {}
