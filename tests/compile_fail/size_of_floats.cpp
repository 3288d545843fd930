// SPDX-License-Identifier: Apache-2.0
// Sizes are integers: PyTorch refuses others at run time, we refuse them at compile time.
// expect: error: no matching function.*does not satisfy 'size_number'
import shardmesh.sharding;

int main() {
  return shardmesh::flatten_tensor_size(2, 1.5).has_value();
}
