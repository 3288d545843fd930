// SPDX-License-Identifier: Apache-2.0
// Not exported: the hyper-parameters of a model as metadata values of llama.cpp, from config.json and
// generation_config.json.
module shardmesh.mapping:hyper_parameters;

import shardmesh.std;
import shardmesh.core;
import :architectures;
import :hf_folder;
import :model_sizes;
import :model_value;
import :size_expression;

namespace shardmesh::llama_cpp {

struct hyper_parameters {
  std::vector<model_value> values;
  std::vector<model_tensor> tensors;
  std::vector<std::string> missing;   // keys for which the configuration has no valid number, one phrase each
  std::vector<std::string> rotation;  // what is missing of the rotation of positions, one phrase each
};

// Returns the numbers of a configuration. Those of "text_config" replace those around it, and given ones replace both.
named_sizes numbers_of(const model_sizes& sizes);

// Returns "model_type" of a configuration: that of "text_config", or else that around it. Empty without any.
std::string model_type_of(const std::string& config);

// Computes the values of an architecture.
// \param config  a configuration as JSON
hyper_parameters read_hyper_parameters(const std::string& config, const model_architecture& model,
                                       const named_sizes& numbers);

// Reads the values for sampling that generation_config.json recommends. A file that is no JSON has none.
// \errors those of `hf_folder`
result<std::vector<model_value>> read_sampling(const hf_folder& folder);

}  // namespace shardmesh::llama_cpp
