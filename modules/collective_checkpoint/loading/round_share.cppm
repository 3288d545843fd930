// SPDX-License-Identifier: Apache-2.0
// Not exported: one rank's part of the rounds in which ranks read pieces for each other, as bytes from rank 0. A rank
// knows the pieces that it reads, with all their receivers, and the pieces that it gets. reading_rounds plans the
// rounds; staged_round runs them.
module shardmesh.collective_checkpoint:round_share;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import :rank_state;
import :reading_rounds;

namespace shardmesh {

// The part of a piece that one rank wants for one of its boxes.
struct wanted_part {
  std::int32_t rank = 0;
  std::int64_t part = -1;  // position in the rank's parts of the tensor; -1 if it is another rank's
  std::size_t layer = 0;   // parts of one layer are disjoint or equal
  box where;               // in the tensor's indices, within the piece
};

struct piece_share {
  std::int32_t reader = 0;
  std::int32_t chunk = -1;  // if this rank reads the piece
  box where;
  std::vector<wanted_part> wanted;  // by all ranks if this rank reads the piece, else by this rank
};

// The part of one tensor that is read in a round. Every rank has all tensors of the round, in the same order.
struct round_tensor_share {
  std::size_t stored = 0;         // in the catalog's tensors
  dtype type = dtype::undefined;  // as requested
  bool is_last = false;           // this round completes the tensor
  std::size_t layers = 1;         // transfers that move the tensor
  std::vector<piece_share> pieces{};
};
using round_share = std::vector<round_tensor_share>;

// Encodes one note per rank, with its part of all rounds.
// Cost: O((pieces + copies) x log boxes + ranks x tensors); for boxes that overlap without being equal, O(boxes^2).
result<std::vector<std::vector<std::byte>>> encode_round_shares(const merged_state& all, const catalog& contents,
                                                                std::span<const reading_round> rounds,
                                                                std::int32_t ranks);

// Returns nothing for malformed bytes. Positions of parts are not compared with the rank's state.
std::optional<std::vector<round_share>> read_round_shares(std::span<const std::byte> bytes, const catalog& contents,
                                                          std::int32_t rank, std::int32_t ranks);

}  // namespace shardmesh
