// SPDX-License-Identifier: Apache-2.0
// The mapping under which a checkpoint is opened.
#pragma once
#include <shardmesh/c_api/checkpoint.h>

#include <filesystem>
#include <memory>

import shardmesh;

namespace c_api {

/// Shows the reader of the checkpoint at `path` as `map` of the options says; without it, returns the reader. Reading
/// then compares checksums. \throws invalid_argument for options of a mapping without `map`
std::unique_ptr<shardmesh::checkpoint_reader> apply_map(std::unique_ptr<shardmesh::checkpoint_reader> reader,
                                                        const std::filesystem::path& path,
                                                        const shardmesh_open_options& wanted);

}  // namespace c_api
