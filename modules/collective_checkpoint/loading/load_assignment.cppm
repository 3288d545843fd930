// SPDX-License-Identifier: Apache-2.0
// Not exported: decides which rank reads which bytes when many ranks load together, so that exactly one rank reads each
// stored byte. Rank 0 decides for all. Reading is in load; the exchange is in staged_round.
module shardmesh.collective_checkpoint:load_assignment;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :load;
import :rank_state;

namespace shardmesh {

// A box that one rank reads into its own memory, and sends to the other holders.
struct shared_box {
  std::size_t tensor = 0;
  replica_range holders;
  std::size_t reader = 0;  // the index of the reader's box in the tensor's `boxes`
  std::int64_t bytes = 0;
};

// A chunk to cut if its form allows that. The checkpoint's metadata does not show the form.
struct unclear_chunk {
  std::size_t tensor = 0;
  std::int32_t chunk = 0;
  std::int32_t rank = 0;  // opens the chunk and reports its form to rank 0
};

struct load_assignment {
  std::vector<shared_box> shared;      // each rank reads its other boxes of these tensors itself
  std::vector<std::size_t> in_pieces;  // tensors that ranks read in pieces, as stored, for each other
  std::int64_t piece_bytes = 0;        // the most bytes of these tensors that a rank reads at once
  std::vector<unclear_chunk> unclear;
};

struct assignment_limits {
  read_sharing sharing = read_sharing::automatic;
  std::int32_t ranks = 1;
  std::int64_t staging_bytes = 0;  // the most that a rank reads for others before it sends it
};

// Chooses one of three ways for each tensor. Every rank reads its own boxes, if that reads no byte twice. Otherwise one
// rank reads each distinct box, if that reads no other bytes. Otherwise the ranks that want part of the tensor read
// pieces of its chunks. `is_there`: per tensor, whether it is in `contents`.
// Cost: O(n log n) of all boxes and chunks.
load_assignment assign_reads(const merged_state& all, const std::vector<bool>& is_there, const catalog& contents,
                             const assignment_limits& limits);

// Returns the chunks of a tensor, each box once, if they hold every element exactly once; otherwise nothing.
std::vector<std::int32_t> chunks_of(const catalog& contents, const tensor_entry& tensor);

}  // namespace shardmesh
