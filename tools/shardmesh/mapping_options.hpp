// SPDX-License-Identifier: Apache-2.0
// The options that choose a mapping between naming conventions, for convert, reshard, diff, and map.
#pragma once
#include <memory>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.checkpoint_core;
import shardmesh.mapping;

namespace CLI {
class App;
}  // namespace CLI

namespace tool {

/// The options as typed.
struct mapping_arguments {
  std::string map, config;
  std::vector<std::string> sizes;
  bool inverse = false;

  bool is_given() const { return !map.empty(); }
};

/// Adds --map, --inverse, --config, and --size; they fill `into`. `source` is the argument of the mapped checkpoint.
void add_mapping_options(CLI::App& command, mapping_arguments& into, const std::string& source = "SRC");

/// Finds the mappings that --map names, in the order in which they are applied.
shardmesh::result<std::vector<shardmesh::mapping_rules>> find_mappings(const mapping_arguments& given);

/// Reads the sizes of --size, and those of --config: without it, of config.json or params.json beside the checkpoint.
shardmesh::result<shardmesh::model_sizes> read_sizes(const mapping_arguments& given, const std::string& source);

/// Shows a checkpoint under the convention to which --map leads, with checked sums.
shardmesh::result<std::unique_ptr<shardmesh::checkpoint_reader>> apply_mappings(
    std::unique_ptr<shardmesh::checkpoint_reader> reader, const mapping_arguments& given, const std::string& source);

}  // namespace tool
