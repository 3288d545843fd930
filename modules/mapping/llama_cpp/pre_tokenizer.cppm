// SPDX-License-Identifier: Apache-2.0
// Not exported: llama.cpp's names of pre-tokenizers, "tokenizer.ggml.pre". A name stands for the expressions that split
// a text before byte pairs are merged.
module shardmesh.mapping:pre_tokenizer;

import shardmesh.std;

namespace shardmesh::llama_cpp {

// Returns the name of a pre-tokenizer; nothing for an unknown one.
// \param steps  as `hf_tokenizer::pre_tokenizer` lists them
// \param ignores_merges  whole words that are tokens are not merged from bytes
// llama.cpp's converter encodes a sample with the tokenizer and compares the hash of the tokens. The steps of
// tokenizer.json decide in the same way, and need no tokenizer.
std::optional<std::string_view> pre_tokenizer_name(const std::vector<std::string>& steps, bool ignores_merges,
                                                   std::string_view architecture);

}  // namespace shardmesh::llama_cpp
