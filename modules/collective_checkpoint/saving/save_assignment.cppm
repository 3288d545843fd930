// SPDX-License-Identifier: Apache-2.0
// Not exported: decides which rank writes which boxes and objects when many ranks save together. Writing is in
// rank_save.
module shardmesh.collective_checkpoint:save_assignment;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :rank_state;

namespace shardmesh {

// A part of a tensor in the state of this rank.
struct held_place {
  std::size_t tensor = 0, part = 0;
};

// The work of all ranks, or the share of one rank alone (`rank_share`). Where all ranks compute the work of all, it is
// the same on every rank, except the members that belong to this rank.
struct save_assignment {
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
  std::vector<std::int64_t> object_lengths;    // per object, the bytes of its archive
  std::vector<std::ptrdiff_t> object_indices;  // per object, its index on this rank; -1: another rank writes it
  view_source source;                          // the parts of the tensors that this rank writes
  std::vector<held_place> places;              // of the views of `source`, in their order
  detail::problem_list problems;               // if there are any, the other members are incomplete
};

// Selects the saved entries, tensors and then objects, with their names and dtypes.
selection_result select_saved(const merged_state& all, const selection_options& options);

// Assigns each box to the holder that has the least to write, and each object to the lowest rank that has it. `kept`:
// the result of `select_saved`. Problems: gaps, overlaps of unequal boxes, dtypes that cannot be cut, and objects that
// differ between ranks (unless `lowest_rank_objects`). `shares`: one per rank, to which the rank's share is written
// (`rank_share`), except this rank's; empty if no rank needs one.
// Cost: O(n log n) of the n boxes of all ranks.
save_assignment assign_writers(const merged_state& all, std::span<const selected> kept, const const_local_state& held,
                               std::int32_t rank, bool lowest_rank_objects, std::span<detail::wire_writer> shares = {});

// Returns the work of one rank from the share that `assign_writers` wrote for it on rank 0. `objects`: this rank's, as
// it described them.
// \errors errc::bad_format for a share that does not fit what the rank holds
result<save_assignment> take_share(std::span<const std::byte> share, const const_local_state& held,
                                   std::span<const described_object> objects, std::int32_t rank);

// Sets the views of an assignment to the memory of a state that has the same places.
void bind_views(save_assignment& work, const const_local_state& held);

}  // namespace shardmesh
