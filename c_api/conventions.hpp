// SPDX-License-Identifier: Apache-2.0
// The mapping under which a checkpoint is opened, or tensors in memory are saved.
#pragma once
#include <shardmesh/c_api/checkpoint.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

import shardmesh;
import shardmesh.mapping;

namespace c_api {

/// The members of options that choose a mapping.
struct mapping_choice {
  const char* map;
  const char* config;
  const shardmesh_model_size* sizes;
  std::size_t size_count;
  bool is_inverse;
};

/// Mappings in the order in which they are applied, and the sizes of the model.
struct chosen_mapping {
  std::vector<shardmesh::mapping_rules> mappings;
  shardmesh::model_sizes sizes;
};

/// Reads the mapping, and the sizes, also those beside the checkpoint at `path`. An empty path has none beside it.
/// \pre choice.map is not null
chosen_mapping to_mapping(const mapping_choice& choice, const std::filesystem::path& path);

/// \throws invalid_argument for options of a mapping without `map`
void refuse_without_map(const mapping_choice& choice);

/// Shows the reader of the checkpoint at `path` as `map` of the options says; without it, returns the reader. Reading
/// then compares checksums. \throws invalid_argument for options of a mapping without `map`
std::unique_ptr<shardmesh::checkpoint_reader> apply_map(std::unique_ptr<shardmesh::checkpoint_reader> reader,
                                                        const std::filesystem::path& path,
                                                        const shardmesh_open_options& wanted);

}  // namespace c_api
