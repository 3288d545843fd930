// SPDX-License-Identifier: Apache-2.0
// Not exported: everything beside a model's own tensors that llama.cpp needs in its file, from the Hugging Face folder
// of the model: hyper-parameters, tokenizer, and computed tensors. What cannot be carried is a note.
module shardmesh.mapping:model_values;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :model_sizes;
import :model_value;

namespace shardmesh::llama_cpp {

struct model_values {
  std::vector<model_value> values;
  std::vector<model_tensor> tensors;
  std::vector<std::string> notes;
};

// Reads the values of a model.
// \param mapped      the checkpoint with llama.cpp's names of tensors
// \param convention  of these names: "gguf.llama"
// \errors errc::io and the errors of stores. Defects of the files are notes: the model may have been converted without
//         them, and its tensors are intact.
result<model_values> read_model_values(const catalog& mapped, std::string_view convention, const model_sizes& sizes);

}  // namespace shardmesh::llama_cpp
