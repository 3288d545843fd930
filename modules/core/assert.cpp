// SPDX-License-Identifier: Apache-2.0
// Not of the module: headers declare it, which other frameworks include without an import.
#include <shardmesh/assert.hpp>

#include <cstdio>
#include <cstdlib>

namespace shardmesh::detail {

void broken_precondition(const char* condition) noexcept {
  std::fprintf(stderr, "shardmesh: broken precondition: %s\n", condition);
  std::abort();
}

}  // namespace shardmesh::detail
