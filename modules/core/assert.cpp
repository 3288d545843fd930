// SPDX-License-Identifier: Apache-2.0
// Not part of the module: headers that other frameworks include without an import declare this function.
#include <shardmesh/assert.hpp>

#include <cstdio>
#include <cstdlib>

namespace shardmesh::detail {

void broken_precondition(const char* condition) noexcept {
  std::fprintf(stderr, "shardmesh: broken precondition: %s\n", condition);
  std::abort();
}

}  // namespace shardmesh::detail
