// SPDX-License-Identifier: Apache-2.0
// The steps that the command line, Python, and C share: they find the mappings that a user names, read the model's
// sizes, and make the mapped checkpoint.
export module shardmesh.mapping:map_checkpoint;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :mapped;
import :model_sizes;
import :rules;

export namespace shardmesh {

/// Finds the mappings that a user names: two conventions, such as "hf.llama:megatron.gpt", or a TOML file. A text that
/// ends in ".toml" or contains a "/" is the path of a file.
/// \param is_inverse  applies the mapping of a file from right to left
/// \returns the mappings in the order in which they are applied
/// \errors those of `find_mappings` and `read_mapping`; errc::invalid_argument for the inverse of two conventions
result<std::vector<mapping_rules>> choose_mappings(std::string_view named, bool is_inverse = false);

/// Reads the sizes of a checkpoint's model from `config`. If that is empty, reads config.json or params.json beside the
/// checkpoint: in its folder, or in the folder of its file. Without such a file, the result has no sizes. The result
/// remembers the file: see `model_sizes::config_file`.
/// \errors those of `read_config`
result<model_sizes> read_model_sizes(const std::filesystem::path& checkpoint, const std::filesystem::path& config = {});

/// Checks that the mappings use each given size: as a name of [sizes] or [captures], in an expression, or as a factor.
/// `map_checkpoint` calls it. Call it yourself before `bind_mapping`.
/// \errors errc::invalid_argument for each other name, with the nearest name in the hint
result<void> check_given_sizes(std::span<const mapping_rules> mappings, const model_sizes& sizes);

/// Shows a checkpoint under the convention to which the last mapping leads. No tensor is read.
///
/// If that convention is one of llama.cpp's ("gguf.llama"), the checkpoint also has the hyper-parameters and the
/// tokenizer of the folder of `model_sizes::config_file`: as objects with llama.cpp's keys, and the factors of a scaled
/// rotation as tensors ("rope_freqs.weight"). Entries that the checkpoint has already stay. A note names each value
/// that is missing or invalid. To leave the values out, clear `config_file`, or skip their keys.
/// \param mappings  applied in order: each is bound to the tensors that the previous one makes
/// \errors those of `check_given_sizes`, `bind_mapping`, and `mapped`; errc::io for a file of the tokenizer
/// Cost: that of `bind_mapping`, for each mapping; for llama.cpp, the reading of tokenizer.json or tokenizer.model.
result<std::unique_ptr<checkpoint_reader>> map_checkpoint(std::unique_ptr<checkpoint_reader> reader,
                                                          std::span<const mapping_rules> mappings,
                                                          const model_sizes& sizes, const mapped_options& options = {});

}  // namespace shardmesh
