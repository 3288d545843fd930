// SPDX-License-Identifier: Apache-2.0
// Repeats a system call that a signal interrupted. Not for `close`, which closes its descriptor even then.
module;
#include <cerrno>
module shardmesh.storage:uninterrupted;

import shardmesh.std;

namespace shardmesh {

template <std::invocable Call>
auto uninterrupted(Call&& call) {
  for (;;)
    if (const auto returned = call(); returned >= 0 || errno != EINTR) return returned;
}

}  // namespace shardmesh
