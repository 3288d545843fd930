// SPDX-License-Identifier: Apache-2.0
// Not exported: what the ranks of a load read for each other between two exchanges: pieces of stored chunks, dealt out
// evenly, so much that it fits each rank's staging memory. Not here: which tensors are read so (load_assignment).
module shardmesh.collective_checkpoint:reading_rounds;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :chunk_forms;
import :load_assignment;
import :rank_state;

namespace shardmesh {

// A box of a stored chunk that one rank reads for all that want something of it.
struct read_piece {
  std::int32_t chunk = 0;
  box where;  // of the tensor
  std::int32_t reader = 0;
};

// What a round has of one tensor.
struct round_tensor {
  std::size_t tensor = 0;
  bool is_whole = false;  // all that is wanted of it
  bool is_last = false;   // with this round all of it was read
  std::vector<read_piece> pieces;
};
using reading_round = std::vector<round_tensor>;

struct round_limits {
  std::int32_t ranks = 1;
  std::int64_t staging_bytes = 0;       // of a rank in a round
  bool one_reader_for_a_chunk = false;  // as its checksum is compared
};

// Pieces follow each other as they are stored, of a file as many to one rank as it reads at once; whoever has the least
// reads on, among those that want something of the tensor. A chunk that is read in order has one reader, in all rounds.
// `forms`: of the chunks that were unclear. The same on every rank. Cost: O(pieces x ranks).
std::vector<reading_round> plan_rounds(const merged_state& all, const catalog& contents, const load_assignment& reads,
                                       const std::unordered_map<std::int32_t, chunk_form>& forms,
                                       const round_limits& limits);

}  // namespace shardmesh
