// SPDX-License-Identifier: Apache-2.0
// How the commands open what they are given.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"

import shardmesh;
import shardmesh.catalog;

namespace tool {

/// By the limits that were asked for; with --all, every part of a folder as one checkpoint. `only_keys`: what is asked
/// for, where it is not everything.
inline shardmesh::result<std::unique_ptr<shardmesh::checkpoint_reader>> open_source(
    const std::string& path, const common_options& common, const std::vector<std::string>& only_keys = {}) {
  const shardmesh::open_options how{.limits = shardmesh::read_limits{}.times(common.limit_factor),
                                    .only_keys = only_keys,
                                    .rank = common.rank,
                                    .keys_at_ranks = common.keys_at_ranks};
  return common.all_parts ? shardmesh::open_parts(path, how) : shardmesh::open_checkpoint(path, how);
}

}  // namespace tool
