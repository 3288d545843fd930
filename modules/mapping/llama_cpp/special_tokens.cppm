// SPDX-License-Identifier: Apache-2.0
// Not exported: the special tokens of a tokenizer as llama.cpp's files name them: their ids, and which of them begin
// and end a text.
module shardmesh.mapping:special_tokens;

import shardmesh.std;
import :hf_tokenizer;
import :model_value;
import :size_expression;
import :tokenizer_settings;

namespace shardmesh::llama_cpp {

struct special_tokens {
  std::vector<model_value> values;
  std::vector<std::string> missing;  // ids that no token has, one phrase each
};

// Finds the special tokens: by the texts in tokenizer_config.json among the added tokens, by the ids in config.json, or
// by these texts among all tokens.
// \param tokenizer    of tokenizer.json; null if there is none
// \param numbers      those of config.json
// \param tokens       all tokens, by their ids
// Source: SpecialVocab of the Python package gguf
special_tokens find_special_tokens(const hf_tokenizer* tokenizer, const tokenizer_settings& settings,
                                   const named_sizes& numbers, std::span<const std::string> tokens);

}  // namespace shardmesh::llama_cpp
