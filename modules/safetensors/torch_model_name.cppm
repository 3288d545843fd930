// SPDX-License-Identifier: Apache-2.0
// torch_model_name: what Hugging Face's libraries called a model's files before safetensors: "pytorch_model.bin",
// "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json". Not here: opening them (checkpoint).
export module shardmesh.safetensors:torch_model_name;

import shardmesh.std;

export namespace shardmesh::safetensors {

/// What such a name says: "pytorch_model.fp16-00001-of-00002.bin" is part 1 of 2 of the stem "pytorch_model" in the
/// variant "fp16".
struct torch_model_name {
  std::string stem, variant;
  int part = 0, parts = 0;  // 0 of 0: the whole model
};

/// Nothing for what lies beside a model: "optimizer.bin", "training_args.bin".
/// Source: transformers.utils.WEIGHTS_NAME, diffusers.utils.WEIGHTS_NAME, peft.utils.WEIGHTS_NAME, open_clip
std::optional<torch_model_name> parse_torch_model_name(std::string_view file);
/// "pytorch_model.bin.index.json", "pytorch_model.bin.index.fp16.json"
bool is_torch_model_index(std::string_view file);

}  // namespace shardmesh::safetensors
