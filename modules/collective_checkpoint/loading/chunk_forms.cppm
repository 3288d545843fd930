// SPDX-License-Identifier: Apache-2.0
// Not exported: finds how to cut stored chunks of which several ranks read pieces. Only the files of these chunks show
// their form. load_assignment chooses the chunks; reading_rounds cuts them.
module shardmesh.collective_checkpoint:chunk_forms;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import :load_assignment;
import :load_share;
import :rank_state;

namespace shardmesh {

struct chunk_form {
  bool in_order = false;  // must be read front to back, so by one rank
  extents order;          // the dimensions by descending stride
};

// Opens this rank's chunks, and returns a note for rank 0 with the forms of those that are not row-major or cannot be
// read at random.
// \errors those of open_chunk
result<std::vector<std::byte>> look_at_chunks(checkpoint_reader& reader, std::span<const chunk_to_open> chunks);

// Reads the notes of all ranks. `chunks`: the unclear chunks of all ranks. The result has no row-major chunks.
// \errors errc::bad_format naming the rank
result<std::unordered_map<std::int32_t, chunk_form>> read_forms(const agreement_notes& notes, const merged_state& all,
                                                                std::span<const unclear_chunk> chunks);

}  // namespace shardmesh
