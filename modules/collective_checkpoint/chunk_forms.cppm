// SPDX-License-Identifier: Apache-2.0
// Not exported: finds how to cut stored chunks of which several ranks read pieces. Only the files of these chunks show
// their form. load_assignment chooses the chunks; reading_rounds cuts them.
module shardmesh.collective_checkpoint:chunk_forms;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :load_assignment;
import :rank_state;

namespace shardmesh {

struct chunk_form {
  bool in_order = false;  // must be read front to back, so by one rank
  extents order;          // the dimensions by descending stride
};

// Returns the forms of those chunks that are not row-major or cannot be read at random. Collective: one rank opens each
// chunk and reports its form to the others.
// \errors those of open_chunk, on every rank
result<std::unordered_map<std::int32_t, chunk_form>> look_at_chunks(const merged_state& all, checkpoint_reader& reader,
                                                                    std::span<const unclear_chunk> chunks,
                                                                    const round_of_ranks& ranks);

}  // namespace shardmesh
