// SPDX-License-Identifier: Apache-2.0
// Opens the checkpoints that commands are given.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"

import shardmesh;
import shardmesh.checkpoint_core;

namespace tool {

/// The time limit of the command, for options of the library.
inline shardmesh::time_limit time_limit_of(const common_options& common) {
  return common.end ? shardmesh::time_limit(*common.end) : shardmesh::time_limit();
}

/// Opens a checkpoint with the given limits; with --all, every part of a folder as one checkpoint. `only_keys`: the
/// keys that the command needs, if not all.
inline shardmesh::result<std::unique_ptr<shardmesh::checkpoint_reader>> open_source(
    const std::string& path, const common_options& common, const std::vector<std::string>& only_keys = {}) {
  const shardmesh::open_options how{.limits = shardmesh::read_limits{}.times(common.limit_factor),
                                    .only_keys = only_keys,
                                    .rank = common.rank,
                                    .keys_at_ranks = common.keys_at_ranks,
                                    .within = time_limit_of(common)};
  return common.all_parts ? shardmesh::open_parts(path, how) : shardmesh::open_checkpoint(path, how);
}

}  // namespace tool
