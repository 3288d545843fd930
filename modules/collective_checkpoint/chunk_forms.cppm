// SPDX-License-Identifier: Apache-2.0
// Not exported: how stored chunks can be cut that several ranks read pieces of: what only their files say. Not here:
// which chunks these are (load_assignment), cutting (reading_rounds).
module shardmesh.collective_checkpoint:chunk_forms;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :load_assignment;
import :rank_state;

namespace shardmesh {

struct chunk_form {
  bool in_order = false;  // read front to back, so by one rank
  extents order;          // its dimensions, the one whose indices lie farthest apart first
};

// Of the chunks that are not row-major and plain. Collective: each chunk is opened by one rank, which tells the others.
// \errors those of open_chunk, on every rank
result<std::unordered_map<std::int32_t, chunk_form>> look_at_chunks(const merged_state& all, checkpoint_reader& reader,
                                                                    std::span<const unclear_chunk> chunks,
                                                                    const round_of_ranks& ranks);

}  // namespace shardmesh
