// SPDX-License-Identifier: Apache-2.0
// Not exported: the pieces of a tokenizer.model of SentencePiece, a message of Protocol Buffers.
module shardmesh.mapping:sentencepiece;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::llama_cpp {

// The numbers are those of the file.
enum class piece_type : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct piece {
  std::string text;
  float score = 0;
  piece_type type = piece_type::normal;
};

// Reads the pieces in the order of their ids. Other fields are skipped.
// \errors errc::bad_format for a damaged message, a piece that is not UTF-8, or a file without pieces;
//         errc::out_of_bounds for more than `most_tokens` pieces
// Source: sentencepiece_model.proto
result<std::vector<piece>> read_pieces(std::string_view file);

}  // namespace shardmesh::llama_cpp
