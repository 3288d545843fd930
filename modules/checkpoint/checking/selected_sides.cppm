// SPDX-License-Identifier: Apache-2.0
// Not exported: selected_sides, the entries of two checkpoints that a selection chooses for `diff`. The rules of a
// selection are in selection.
module shardmesh.checkpoint:selected_sides;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :diff;
import :selection;

namespace shardmesh {

// The entries of both sides, with their new names and dtypes.
struct selected_sides {
  diff_side left, right;
  std::vector<std::string> notes;  // of the selection, each once
};

// Chooses the entries of both sides by the same rules. A rule must match or cast something on at least one side.
// \errors those of `select_keys`
result<selected_sides> select_sides(checkpoint_reader& left, checkpoint_reader& right,
                                    const selection_options& selection);

}  // namespace shardmesh
