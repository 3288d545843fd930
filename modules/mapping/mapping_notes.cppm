// SPDX-License-Identifier: Apache-2.0
// Not exported: what a mapping does to a checkpoint, for the user: counts, and the name of everything that is left out.
module shardmesh.mapping:mapping_notes;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

namespace shardmesh {

// Returns the notes about a mapping that is bound to `source`, one line each.
std::vector<std::string> notes_of(const bound_mapping& bound, const catalog& source);

}  // namespace shardmesh
