// SPDX-License-Identifier: Apache-2.0
// Not exported: the values in one rank's state dict for the entries of a model, and their checks before ranks compare
// them.
module shardmesh.fsdp:offered_state;

import shardmesh.std;
import shardmesh.sharding;
import :load;
import :model;

namespace shardmesh::detail {

struct offered_state {
  const fsdp_model& model;
  communicator_ref comm;
  std::vector<fsdp_entry> entries;
  std::vector<offered_value> values;  // one per entry
  load_state_options options;

  // The model's shape and dtype of an entry.
  extents shape_of(const fsdp_entry& entry) const;
  dtype type_of(const fsdp_entry& entry) const;

  // Turns sharded tensors with the shape of this rank's column into shards of the whole parameter.
  result<void> widen_columns();
  // Checks that this rank's values can be loaded at all.
  result<void> check_values() const;
  // Checks that backends reach the memory to fill.
  result<void> check_targets() const;
};

}  // namespace shardmesh::detail
