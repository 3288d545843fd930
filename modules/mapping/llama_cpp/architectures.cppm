// SPDX-License-Identifier: Apache-2.0
// Not exported: the architectures of llama.cpp that our gguf.* conventions lead to, and the values that each needs from
// a model's configuration. A new architecture is a row of the table, and no code.
module shardmesh.mapping:architectures;

import shardmesh.std;

namespace shardmesh::llama_cpp {

enum class field_kind : std::uint8_t {
  integer,   // uint32
  flag,      // bool, which is left out if it is false
  fraction,  // float32
};

// One value of a model.
struct model_field {
  std::string_view key;  // after the architecture's name and a dot
  field_kind kind = field_kind::integer;
  // An integer or a flag: an expression (`size_expression`) over the numbers of the configuration. A fraction: the
  // member of the configuration. The members of "text_config" come before those around it.
  std::string_view value;
  bool is_needed = true;                 // a note names it if the configuration lacks a number
  std::string_view condition = {};       // an expression: the field applies where it is not 0
  std::optional<double> otherwise = {};  // of a fraction that the configuration may omit
};

enum class rope_form : std::uint8_t {
  none,      // no rotation, or nothing to state about it
  usual,     // rope_theta and rope_scaling
  llama,     // the same, and the factors of Llama 3.1, which are a tensor
  deepseek,  // the usual form, and the multiplier of YaRN's logarithm
  phi3,      // two lists of factors, which are tensors
};

enum class tokenizer_form : std::uint8_t {
  pieces,  // tokenizer.model, or else tokenizer.json
  bytes,   // tokenizer.json, which must be byte-level BPE
};

struct model_architecture {
  std::string_view name;                          // general.architecture
  std::string_view convention;                    // of the tensors' names
  std::span<const std::string_view> model_types;  // "model_type" of the configurations
  std::span<const model_field> fields;
  rope_form rope = rope_form::usual;
  tokenizer_form tokenizer = tokenizer_form::pieces;
  bool is_gemma = false;  // its pieces never begin with a space of their own
};

// Returns the architecture of a model; null if the convention has none of this type.
const model_architecture* find_architecture(std::string_view convention, std::string_view model_type);

// Returns the types of models of a convention, for messages: "qwen2, qwen3". Empty for a convention without
// architectures.
std::string model_types_of(std::string_view convention);

}  // namespace shardmesh::llama_cpp
