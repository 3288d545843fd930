// SPDX-License-Identifier: Apache-2.0
// Not exported: decides which entries of a checkpoint a delta holds, and in which form. No element is read.
module shardmesh.delta:delta_plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :description;

namespace shardmesh::delta {

// The tensors and objects of a delta, whose blocks and archives are not yet made.
struct delta_plan {
  description described;
  // One per tensor of the description: its counterparts in the catalogs. `base` is null without `has_base`.
  struct source {
    const tensor_entry* next = nullptr;
    const tensor_entry* base = nullptr;
  };
  std::vector<source> sources;
  std::vector<std::size_t> objects;  // indices into the catalog of the new checkpoint
  std::int64_t skipped_tensors = 0, skipped_objects = 0;
  std::vector<std::string> notes;
};

// \errors those of `save_delta` about entries
result<delta_plan> plan_delta(checkpoint_reader& base, checkpoint_reader& next, std::int64_t block_bytes,
                              bool skip_unsupported);

}  // namespace shardmesh::delta
