// SPDX-License-Identifier: Apache-2.0
// A type without an adapter is not a tensor, whatever members it has.
// expect: error: no matching function.*does not satisfy 'local_tensor'
#include <cstddef>

import shardmesh.core;

struct foreign {
  float* data();
  std::size_t sizes();
};
void use(shardmesh::local_tensor auto&) {}
int main() {
  foreign tensor;
  use(tensor);
}
