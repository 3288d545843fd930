// SPDX-License-Identifier: Apache-2.0
// A state dict that is read has new tensors, so the adapter must be able to make them.
// says: the tensors of a checkpoint are new ones: give adapter<T> a view and allocate(dtype, sizes, device)
#include <shardmesh/adapter.hpp>

import shardmesh.state_checkpoint;

struct view_only {};
template <>
struct shardmesh::adapter<view_only> {
  static tensor_view view(const view_only&) { return {}; }
};
int main() {
  shardmesh::read_state_dict<view_only>("model.safetensors");
}
