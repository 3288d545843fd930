// SPDX-License-Identifier: Apache-2.0
// Not exported: who writes what when many ranks save together. Not here: writing (save).
module shardmesh.collective_checkpoint:save_assignment;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.catalog;
import shardmesh.checkpoint;
import :rank_state;

namespace shardmesh {

// The same on every rank, but for what is said to be this rank's.
struct save_assignment {
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
  std::vector<std::int64_t> object_lengths;    // per object, of its archive
  std::vector<std::ptrdiff_t> object_indices;  // per object, which of this rank's objects it writes; -1: none
  view_source source;                          // what this rank writes of the tensors
  problem_list problems;                       // when there are any, the rest is not whole
};

// Which of all entries are saved, tensors and then objects, under which names and dtypes.
selection_result select_saved(const merged_state& all, const selection_options& options);

// A box that several ranks hold is written by the one that has the least to write, an object by the lowest rank that
// has it. `kept`: what `select_saved` chose. Problems: gaps, overlaps of boxes that are not equal, dtypes that cannot
// be cut, and objects that differ between ranks unless the lowest rank's are taken. Cost: O(n log n) of the n boxes of
// all ranks.
save_assignment assign_writers(const merged_state& all, std::span<const selected> kept, const const_held_state& held,
                               std::int32_t rank, bool lowest_rank_objects);

}  // namespace shardmesh
