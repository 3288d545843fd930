// SPDX-License-Identifier: Apache-2.0
// Not exported: the answer of rank 0 to each rank of a load, before anything is read, as bytes. A share names entries
// by their positions in the catalog, which every rank has, and boxes by their positions in the rank's own state.
// load_assignment chooses the readers; the rounds of pieces are in round_share.
module shardmesh.collective_checkpoint:load_share;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :load;
import :load_assignment;
import :rank_state;
import :request_match;

namespace shardmesh {

// Rank 0's plan of a whole load, without the rounds of pieces.
struct load_plan {
  merged_state all;
  request_match match;
  load_assignment reads;
  bool check = false;     // a rank wants its data compared with checksums
  bool has_ties = false;  // on any rank
};

// A part of the rank that it reads and sends to other ranks, or gets from the rank that reads it.
struct shared_part {
  std::int64_t part = 0;  // position in the rank's parts of the tensor
  bool reads = false;
  std::vector<std::int32_t> peers;  // the receivers, ascending; or the one sender
};

// A tensor with boxes that one rank reads for others. Every rank has all of these tensors, in the same order.
struct shared_tensor {
  std::size_t stored = 0;            // in the catalog's tensors
  dtype type = dtype::undefined;     // as requested
  std::vector<shared_part> parts{};  // of the rank
};

struct object_to_read {
  std::size_t stored = 0;  // in the catalog's objects
  bool for_others = false;
};

// A chunk whose form the rank finds. `number`: among the unclear chunks of all ranks.
struct chunk_to_open {
  std::int64_t number = 0;
  std::size_t stored = 0;  // its tensor in the catalog
  std::int32_t chunk = 0;
};

struct load_share {
  // The same on every rank.
  load_report report;  // keys and casts; no bytes
  bool check = false, has_ties = false;
  bool opens_chunks = false, has_rounds = false;  // on any rank
  std::vector<shared_tensor> shared;
  // Of the rank.
  std::vector<std::size_t> in_pieces;  // in the catalog's tensors: those that it gets in rounds of pieces
  std::vector<object_to_read> objects;
  std::vector<chunk_to_open> chunks;
};

// Encodes one share per rank. `sharing`: whether one rank reads an object for all.
// Cost: O(boxes of all ranks + ranks x tensors that are shared or loaded).
std::vector<std::vector<std::byte>> encode_load_shares(const load_plan& plan, const catalog& contents,
                                                       read_sharing sharing, std::int32_t ranks);

// Returns nothing for malformed bytes. Positions of parts are not compared with the rank's state.
std::optional<load_share> read_load_share(std::span<const std::byte> bytes, const catalog& contents,
                                          std::int32_t ranks);

// On rank 0, for each rank: the verdict about the plan, and the rank's part of `parts` if there is no error.
std::vector<std::vector<std::byte>> with_verdict(const result<void>& planned, std::vector<std::vector<std::byte>> parts,
                                                 std::int32_t ranks);

}  // namespace shardmesh
