// SPDX-License-Identifier: Apache-2.0
// Not exported: a checkpoint with llama.cpp's names of tensors, and with the values that its file needs.
module shardmesh.mapping:model_values_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :model_sizes;

namespace shardmesh::llama_cpp {

// Returns whether the names of a convention are llama.cpp's.
bool is_gguf_convention(std::string_view convention);

// Adds the values of `read_model_values` as objects, and its tensors. Entries that the checkpoint has already stay, and
// no entry replaces them.
// \errors those of `read_model_values`
result<std::unique_ptr<checkpoint_reader>> with_model_values(std::unique_ptr<checkpoint_reader> mapped,
                                                             std::string_view convention, const model_sizes& sizes);

}  // namespace shardmesh::llama_cpp
