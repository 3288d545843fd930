// SPDX-License-Identifier: Apache-2.0
// Not exported: targets that the last convention ties to other targets. A mapping never makes them. A program may list
// them all the same, because its state has both names.
module shardmesh.mapping:tied_targets;

import shardmesh.std;
import shardmesh.core;
import :element_pieces;
import :mapped_moves;
import :model_sizes;
import :rules;

namespace shardmesh {

// Finds the tied targets that `made` lacks. The inverse of the last mapping, bound to the targets, names them; if it
// does not fit, none is found, and the call that follows refuses targets that are not made.
//
// A target in the layout of its partner is returned: it needs no bytes of other ranks. Any other one becomes a tensor
// of `made` with the elements of its partner.
// Cost: nothing if all targets are made; otherwise that of `bind_mapping`.
std::vector<tied_copy> add_tied_targets(std::vector<target_elements>& made, std::span<const held_tensor> to,
                                        std::span<const mapping_rules> mappings, const model_sizes& sizes);

}  // namespace shardmesh
