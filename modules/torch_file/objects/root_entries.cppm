// SPDX-License-Identifier: Apache-2.0
// Not exported: the entries of a file of torch.save, from the value at its root.
module shardmesh.torch_file:root_entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :item;
import :object_parts;

namespace shardmesh::torch_file {

struct root_options {
  std::optional<std::string> part{};  // the first step of all keys, in a file that is a part of a larger state
  bool keeps_empty = false;           // makes empty dicts entries
};

// Returns the entries. The root may be a state dict, or another value with tensors in it: a list of them, a whole
// nn.Module. A single value without a name gets one. `source` has the bytes of the archive.
// \errors those of `script_weights`, `flatten_state_dict`, and `take_apart`
result<taken_apart> entries_of_root(const torch_file::item& item, const byte_source& source, read_budget& budget,
                                    const root_options& options);

}  // namespace shardmesh::torch_file
