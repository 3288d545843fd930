// SPDX-License-Identifier: Apache-2.0
// Not exported: the state of all ranks before a mapping, and an even layout of the tensors that a mapping makes.
module shardmesh.mapping:ranks_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.tree;
import :element_pieces;
import :mapped_moves;

namespace shardmesh {

// The tensors and objects of all ranks, the same on every rank.
struct ranks_state {
  std::vector<held_tensor> tensors;  // slot i of a rank is its part i
  std::vector<std::string> objects;  // their dotted keys
};

// Exchanges the descriptions of the ranks' states. Collective; blocks: one all_gather.
// \errors the same on every rank: errc::out_of_bounds, errc::duplicate_key, errc::shape_mismatch, and
//         errc::dtype_mismatch, each naming the key; errc::bad_format
result<ranks_state> gather_states(const const_local_state& held, bool skips_objects, communicator_ref comm,
                                  const call_options& call);

// Chooses a layout of each tensor over ranks: even parts of large tensors, and whole small ones.
// \errors those of `layout::make`
result<std::vector<held_tensor>> spread_evenly(std::span<const target_elements> made, std::int32_t ranks);

}  // namespace shardmesh
