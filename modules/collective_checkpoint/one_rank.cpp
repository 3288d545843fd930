// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.collective_checkpoint;

import shardmesh.comm;
import :one_rank;
import :rank_state;

namespace shardmesh {

error tell_others(communicator_ref comm, const call_options& call, const result<void>& mine) {
  const round_of_ranks round{comm, call};
  const auto told = guarded(comm, [&]() -> result<void> {
    SHARDMESH_TRY(round.settle(mine));
    return {};
  });
  return told ? mine.error() : told.error();
}

}  // namespace shardmesh
