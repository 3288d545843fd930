// SPDX-License-Identifier: Apache-2.0
// Not exported: the tokenizer of a Hugging Face folder as metadata values of llama.cpp.
module shardmesh.mapping:tokenizer_values;

import shardmesh.std;
import shardmesh.core;
import :architectures;
import :hf_folder;
import :model_value;
import :size_expression;

namespace shardmesh::llama_cpp {

struct tokenizer_values {
  std::vector<model_value> values;
  std::vector<std::string> files;  // from which they come
  std::vector<std::string> notes;  // what is missing, each with its remedy
};

// Reads the tokenizer: tokenizer.model, or else tokenizer.json, with the settings beside them.
// \param rows  of the embedding; nothing if the checkpoint has none
// \errors those of `read_settings`, `read_tokenizer`, `read_pieces`, and the vocabularies; errc::missing_key without
//         any tokenizer; errc::unsupported for a tokenizer that the architecture cannot have. Each names the file.
result<tokenizer_values> read_tokenizer_values(const hf_folder& folder, const model_architecture& model,
                                               const named_sizes& numbers, std::optional<std::int64_t> rows);

}  // namespace shardmesh::llama_cpp
