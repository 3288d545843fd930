// SPDX-License-Identifier: Apache-2.0
// Not exported: plans what the ranks of a load read for each other between two exchanges. Pieces of stored chunks are
// dealt out evenly, and each round fits every rank's staging memory. load_assignment chooses the tensors.
module shardmesh.collective_checkpoint:reading_rounds;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :chunk_forms;
import :load_assignment;
import :rank_state;

namespace shardmesh {

// A box of a stored chunk that one rank reads for all ranks that want part of it.
struct read_piece {
  std::int32_t chunk = 0;
  box where;  // in the tensor's indices
  std::int32_t reader = 0;
};

// The part of one tensor that is read in a round.
struct round_tensor {
  std::size_t tensor = 0;
  bool is_last = false;  // this round completes the tensor
  std::vector<read_piece> pieces;
};
using reading_round = std::vector<round_tensor>;

struct round_limits {
  std::int32_t ranks = 1;
  std::int64_t staging_bytes = 0;       // of one rank in one round
  bool one_reader_for_a_chunk = false;  // because its checksum is compared
};

// Deals out pieces in storage order. Consecutive pieces of a file go to one rank until they fill one read; the next
// ones go to the rank with the least to read. Only ranks that want part of the tensor read it. A chunk that must be
// read in order has one reader in all rounds. `forms`: those of the unclear chunks. Rank 0 alone plans.
// Cost: O((pieces + boxes) log ranks + rounds x ranks), if each tensor fits one round. If some elements of a tensor are
//       wanted by no rank, or by several in different boxes, also O(chunks x boxes) for that tensor.
std::vector<reading_round> plan_rounds(const merged_state& all, const catalog& contents, const load_assignment& reads,
                                       const std::unordered_map<std::int32_t, chunk_form>& forms,
                                       const round_limits& limits);

}  // namespace shardmesh
