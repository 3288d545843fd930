// SPDX-License-Identifier: Apache-2.0
// Not exported: a metadata value or a small tensor that llama.cpp expects in the file of a model.
module shardmesh.mapping:model_value;

import shardmesh.std;

namespace shardmesh::llama_cpp {

// A value as an object of a checkpoint.
struct model_value {
  std::string key;
  std::string kind;  // Python's kind of value: "int", "float", "bool", "str", "list"
  std::string json;  // as `checkpoint_reader::read_object` returns it
  std::string type;  // GGUF's type where a writer would choose another, else empty
};

// A float32 tensor of one dimension that is computed from the configuration.
struct model_tensor {
  std::string key;
  std::vector<float> elements;
};

model_value integer_value(std::string key, std::int64_t number);
// Rounds the number to float32, which is the type of all fractions in llama.cpp's files.
model_value fraction_value(std::string key, double number);
model_value flag_value(std::string key, bool flag);
// The texts are UTF-8.
model_value text_value(std::string key, std::string_view text);
model_value texts_value(std::string key, const std::vector<std::string>& texts);
model_value integers_value(std::string key, const std::vector<std::int32_t>& numbers);
model_value fractions_value(std::string key, const std::vector<float>& numbers);

}  // namespace shardmesh::llama_cpp
