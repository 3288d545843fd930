// SPDX-License-Identifier: Apache-2.0
// Not exported: the ranks' common part of every move with a mapping: agreement, the run, and the common end.
module shardmesh.mapping:mapped_run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.transfer;
import :mapped_moves;

namespace shardmesh {

// Tensors of both conventions, and this rank's memory of each.
struct mapped_sides {
  std::vector<held_tensor> from, to;
  std::vector<const_tensor_binding> from_memory;
  std::vector<tensor_binding> to_memory;
};

// Moves the tensors. Collective; blocks. A rank whose `moves` failed gives all ranks its error.
// \errors as for `redistribute` with a mapping, the same on every rank
result<redistribute_report> run_moves(const result<mapped_moves>& moves, const mapped_sides& sides,
                                      communicator_ref comm, const redistribute_options& options);

}  // namespace shardmesh
