// SPDX-License-Identifier: Apache-2.0
// uninterrupted: system calls that a signal cut short are made again. Not for close: what it was given is closed.
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
