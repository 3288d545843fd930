// SPDX-License-Identifier: Apache-2.0
// Not exported: notes for the user about a mapping's effect on a checkpoint: counts, and the names of left-out entries.
module shardmesh.mapping:mapping_notes;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

namespace shardmesh {

// Returns the notes about a mapping that is bound to `source`, one line each.
std::vector<std::string> notes_of(const bound_mapping& bound, const catalog& source);

}  // namespace shardmesh
