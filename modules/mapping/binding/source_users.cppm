// SPDX-License-Identifier: Apache-2.0
// Not exported: the proof that a mapping uses each tensor of the checkpoint once. Optimizer state is in state_binding.
module shardmesh.mapping:source_users;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;
import :binding_problems;

namespace shardmesh {

// Adds a problem for each tensor that no rule uses, that is used twice, or whose tied partner no rule uses.
// \param users  per source tensor: the rules that use it, or `unused_user`
void check_users(const catalog& source, const bound_mapping& made, const std::vector<std::vector<std::size_t>>& users,
                 binding_problems& problems);

}  // namespace shardmesh
