// SPDX-License-Identifier: Apache-2.0
// Sizes are integers: what PyTorch refuses when it runs does not compile.
// expect: error: no matching function.*does not satisfy 'size_number'
import shardmesh.sharding;

int main() {
  return shardmesh::flatten_tensor_size(2, 1.5).has_value();
}
