// SPDX-License-Identifier: Apache-2.0
// Not exported: the conditions of a save by many ranks that must be equal on all of them. The states are compared in
// rank_state.
module shardmesh.collective_checkpoint:save_conditions;

import shardmesh.std;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import :save;

namespace shardmesh {

// Returns the conditions as text, for ranks to compare: the destination, the previous checkpoint, the format, and the
// selection. `saving`: those of `options`.
std::vector<agreement_record> save_conditions(const std::filesystem::path& destination,
                                              const rank_save_options& options, const save_options& saving);

}  // namespace shardmesh
