// SPDX-License-Identifier: Apache-2.0
// Not exported: the tokens of a model as llama.cpp's files have them, and how they are made of a tokenizer's. The
// number of tokens is that of the embedding's rows, because llama.cpp requires it.
module shardmesh.mapping:vocabulary;

import shardmesh.std;
import shardmesh.core;
import :hf_tokenizer;
import :sentencepiece;

namespace shardmesh::llama_cpp {

// llama.cpp's types of tokens.
enum class token_type : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;  // one per token
  std::vector<float> scores;        // one per token; empty for byte-level BPE
  std::int64_t ignored = 0;         // tokens beyond the rows of the embedding
};

// Makes the tokens of a byte-level BPE tokenizer.
// \param rows  of the embedding; nothing: as many as the tokenizer has tokens
// \errors errc::duplicate_key for two tokens of one id, errc::out_of_bounds for an id beyond the rows; each names the
//         token
result<vocabulary> byte_vocabulary(const hf_tokenizer& tokenizer, std::span<const added_token> further,
                                   std::optional<std::int64_t> rows);

// Makes the tokens of a tokenizer.json whose BPE falls back to bytes, such as that of Llama 2. Its scores are the
// negative ranks of the merges, as in the tokenizer.model from which such a file is made.
// \errors those of `byte_vocabulary`
result<vocabulary> fallback_vocabulary(const hf_tokenizer& tokenizer, std::span<const added_token> further,
                                       std::optional<std::int64_t> rows);

// Makes the tokens of a tokenizer.model. Added tokens replace pieces of the same id. Pieces and tokens beyond the rows
// are ignored, and counted.
vocabulary piece_vocabulary(std::vector<piece> pieces, std::span<const added_token> added,
                            std::optional<std::int64_t> rows);

}  // namespace shardmesh::llama_cpp
