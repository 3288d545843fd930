// SPDX-License-Identifier: Apache-2.0
// A redistributed dtensor is new, so the adapter must be able to make tensors.
// says: a redistributed dtensor is a new one: give adapter<T> an allocate(dtype, sizes, device)
#include <shardmesh/adapter.hpp>

import shardmesh.sharding;

struct view_only {};
template <>
struct shardmesh::adapter<view_only> {
  static tensor_view view(const view_only&) { return {}; }
};
void use(const shardmesh::dtensor<view_only>& tensor, shardmesh::any_communicator& comm) {
  static_cast<void>(shardmesh::redistribute(tensor, shardmesh::layout(), comm));
}
int main() {}
