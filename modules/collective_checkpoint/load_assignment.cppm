// SPDX-License-Identifier: Apache-2.0
// Not exported: who reads what when many ranks load together, so that every stored byte is read by one of them. The
// same on every rank. Not here: reading, and what travels (load, staged_round).
module shardmesh.collective_checkpoint:load_assignment;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import shardmesh.checkpoint;
import :load;
import :rank_state;

namespace shardmesh {

// A box that one rank reads into its own memory, and others get from there.
struct shared_box {
  std::size_t tensor = 0;
  replica_range holders;
  std::size_t reader = 0;  // which of the holders
  std::int64_t bytes = 0;
};

// A chunk that may be cut, about which its checkpoint's description does not say enough.
struct unclear_chunk {
  std::size_t tensor = 0;
  std::int32_t chunk = 0;
  std::int32_t rank = 0;  // who looks at it
};

struct load_assignment {
  std::vector<shared_box> shared;      // the rest of these tensors is read by whoever wants it
  std::vector<std::size_t> in_pieces;  // tensors of which ranks read pieces for each other, as they are stored
  std::int64_t piece_bytes = 0;        // most that a rank reads at once of those
  std::vector<unclear_chunk> unclear;
};

struct assignment_limits {
  read_sharing sharing = read_sharing::automatic;
  std::int32_t ranks = 1;
  std::int64_t staging_bytes = 0;  // most that a rank reads for others before they get it
};

// Three ways, by tensor: every rank reads its own boxes, where no byte is then read twice; of equal boxes that can be
// read alone one rank reads each; else the ranks that want something of the tensor read pieces of its chunks.
// `is_there`: per tensor, whether it is in `contents`. Cost: O(n log n) of all boxes and chunks.
load_assignment assign_reads(const merged_state& all, const std::vector<bool>& is_there, const catalog& contents,
                             const assignment_limits& limits);

// The chunks of a tensor, each box once, when they hold every element exactly once; else nothing.
std::vector<std::int32_t> chunks_of(const catalog& contents, const tensor_entry& tensor);

}  // namespace shardmesh
