// SPDX-License-Identifier: Apache-2.0
// Only properties of tensors are compared and described in PyTorch's words; a number is not one.
// expect: error: no matching function.*does not satisfy 'tensor_property'
import shardmesh.sharding;

int main() {
  return shardmesh::check_match(1, 2, "rank", 0).has_value();
}
