// SPDX-License-Identifier: Apache-2.0
// The program of a project that contains ours: a value of core.
#include <cstdio>

import shardmesh.core;

int main() {
  const shardmesh::box where{{1, 0}, {2, 4}};
  std::printf("%lld elements\n", static_cast<long long>(where.volume()));
  return where.volume() == 8 ? 0 : 1;
}
