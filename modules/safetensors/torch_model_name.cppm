// SPDX-License-Identifier: Apache-2.0
// Parses the names that Hugging Face's libraries gave to a model's files before safetensors: "pytorch_model.bin",
// "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json". Opening such files is in checkpoint.
export module shardmesh.safetensors:torch_model_name;

import shardmesh.std;

export namespace shardmesh::safetensors {

/// The parts of such a name: "pytorch_model.fp16-00001-of-00002.bin" is part 1 of 2 of the stem "pytorch_model" in the
/// variant "fp16".
struct torch_model_name {
  std::string stem, variant;
  int part = 0, parts = 0;  // 0 of 0: the whole model
};

/// Parses the name of a model file; nothing for other files beside a model: "optimizer.bin", "training_args.bin".
/// Source: transformers.utils.WEIGHTS_NAME, diffusers.utils.WEIGHTS_NAME, peft.utils.WEIGHTS_NAME, open_clip
std::optional<torch_model_name> parse_torch_model_name(std::string_view file);
/// Returns true for "pytorch_model.bin.index.json" and "pytorch_model.bin.index.fp16.json".
bool is_torch_model_index(std::string_view file);

}  // namespace shardmesh::safetensors
