// SPDX-License-Identifier: Apache-2.0
// A rank's part of a checkpoint consists of new tensors, so the adapter must be able to make them.
// says: the tensors of a checkpoint are new ones: give adapter<T> a view and allocate(dtype, sizes, device)
#include <shardmesh/adapter.hpp>

import shardmesh.state_checkpoint;

struct view_only {};
template <>
struct shardmesh::adapter<view_only> {
  static tensor_view view(const view_only&) { return {}; }
};
int main() {
  shardmesh::load_sharded<view_only>("model.safetensors", shardmesh::device_mesh(), {}, 0);
}
