// SPDX-License-Identifier: Apache-2.0
// Not exported: the content of a tokenizer.json, the file of Hugging Face's tokenizers.
module shardmesh.mapping:hf_tokenizer;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::llama_cpp {

// No id of a token is larger. The largest known vocabulary has about 900,000 tokens.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 20;

// A token beside the vocabulary that the training made, or a token of it with a meaning of its own.
struct added_token {
  std::int64_t id = 0;
  std::string content;
  bool is_special = false;
};

// An element of the template around an encoded text: a special token, or a sequence ("A", "B").
struct template_item {
  bool is_special = false;
  std::string id;
};

struct hf_tokenizer {
  std::map<std::int64_t, std::string> vocabulary;  // by id
  std::vector<std::string> merges;                 // "left right"
  std::vector<std::string> merged;                 // the token that each merge makes
  std::string unknown;                             // the unknown token, or empty
  bool falls_back_to_bytes = false;                // SentencePiece's BPE, not byte-level BPE
  bool ignores_merges = false;
  std::vector<added_token> added;
  // The steps before the merges: "split REGEX" (line breaks as \r and \n), "digits", "bytes" (with the expression of
  // GPT-2), and "raw bytes". Any other step is a text that no known pre-tokenizer has.
  std::vector<std::string> pre_tokenizer;
  std::vector<template_item> single, pair;  // around one text, and around two
  bool is_roberta = false;                  // its texts are between two special tokens
};

// Reads the text of a tokenizer.json.
// \errors errc::bad_format; errc::unsupported for a model that is not BPE; errc::duplicate_key for two tokens of one
//         id; errc::out_of_bounds for an id that is negative, or at least `most_tokens`
result<hf_tokenizer> read_tokenizer(const std::string& text);

}  // namespace shardmesh::llama_cpp
