// SPDX-License-Identifier: Apache-2.0
// Only types with an adapter can be sharded.
// expect: error: constraints not satisfied.*'foreign' does not satisfy 'local_tensor'
#include <vector>

import shardmesh.sharding;

struct foreign {
  std::vector<float> values;
};
using wrong = shardmesh::sharded_tensor<foreign>;
int main() {
  return sizeof(wrong);
}
