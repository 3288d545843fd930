// SPDX-License-Identifier: Apache-2.0
// An adapter's view must be a tensor_view: a pointer has no shape and no type.
// expect: error: no matching function.*does not satisfy 'local_tensor'
#include <shardmesh/adapter.hpp>

import shardmesh.core;

struct foreign {
  float* data = nullptr;
};
template <>
struct shardmesh::adapter<foreign> {
  static float* view(const foreign& t) { return t.data; }
};
void use(shardmesh::local_tensor auto&) {}
int main() {
  foreign tensor;
  use(tensor);
}
