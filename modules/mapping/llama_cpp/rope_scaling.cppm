// SPDX-License-Identifier: Apache-2.0
// Not exported: the rotation of positions (RoPE) in a model's configuration, and its scaling for long contexts. Two
// scalings are tensors in llama.cpp's files, which are computed here.
module shardmesh.mapping:rope_scaling;

import shardmesh.std;
import :architectures;
import :model_value;
import :size_expression;

namespace shardmesh::llama_cpp {

struct rope_values {
  std::vector<model_value> values;
  std::vector<model_tensor> tensors;  // "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
  std::vector<std::string> missing;   // what the configuration states and cannot be carried, one phrase each
};

// Reads the rotation.
// \param config   the configuration as JSON
// \param numbers  its numbers, and those that the user gave
// Source: llama.cpp's converter; the frequencies of Llama 3.1: _compute_llama3_parameters of Transformers
rope_values read_rope(const std::string& config, const model_architecture& model, const named_sizes& numbers);

}  // namespace shardmesh::llama_cpp
