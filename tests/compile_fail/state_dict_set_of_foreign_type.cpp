// SPDX-License-Identifier: Apache-2.0
// A state dict of one tensor type holds no other.
// says: a state dict holds tensors of its own type T
#include <vector>
import shardmesh.state;

int main() {
  shardmesh::state_dict<shardmesh::host_tensor> dict;
  return dict.set({"weight"}, std::vector<float>{1.0F}).has_value();
}
