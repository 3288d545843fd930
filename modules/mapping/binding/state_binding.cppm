// SPDX-License-Identifier: Apache-2.0
// Not exported: optimizer state that follows the tensors of a mapping. How keys name their parameters is in
// `state_names` of room checkpoint.
module shardmesh.mapping:state_binding;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

namespace shardmesh {

// The user of a tensor that is left out by name. All other users are numbers of rules.
inline constexpr std::size_t unused_user = static_cast<std::size_t>(-1);

// Adds the optimizer state of a checkpoint to a mapping that is bound to the other tensors.
//
// State with the shape of its parameter follows the index expression of the parameter's rule. A scalar, such as "step",
// becomes the scalar of each target; if the rule has several sources, a read compares their scalars. Objects of a
// parameter follow like scalars. State of tensors that are ignored or tied is left out with them. Groups of parameters,
// and other entries of an optimizer that belong to no parameter, stay as they are.
//
// \param users   per source tensor: the rules that use it, or `unused_user`. A tensor that has a user is skipped.
// \param refuse  called for each problem, which names the key and the rule
void bind_state(const catalog& source, bound_mapping& made, std::vector<std::vector<std::size_t>>& users,
                function_ref<void(error why)> refuse);

}  // namespace shardmesh
