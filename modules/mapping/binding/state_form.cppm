// SPDX-License-Identifier: Apache-2.0
// Not exported: the ways in which tensors of optimizer state follow their parameters.
module shardmesh.mapping:state_form;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;
import :state_kind;

namespace shardmesh {

// Returns how the state `sources` of the parameters of instance `number` follows, or why it cannot.
result<bound_form> form_of(const catalog& source, const bound_mapping& made, const state_kind& kind, std::size_t number,
                           const std::vector<std::size_t>& sources);

// Checks that elements of this dtype can be computed.
result<void> check_dtype(const catalog& source, const bound_mapping& made, const bound_instance& instance);

}  // namespace shardmesh
