// SPDX-License-Identifier: Apache-2.0
// Splits objects that hold tensors. The tensors become entries, with the names that PyTorch's state_dict() or
// flattening would give them. State dicts are flattened in `flatten`. Not exported.
module shardmesh.torch_file:object_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :flatten;
import :item;

namespace shardmesh::torch_file {

struct taken_apart {
  std::vector<flat_entry> entries;
  std::vector<std::string> notes;  // one line each about contents that are not among the entries
  // The tensors among these contents, which are not part of the saved state or fit in no entry.
  std::int64_t unread_tensors = 0;
};

// Replaces every entry that is an object with tensors by entries for the tensors and for the plain data beside them.
// All other entries stay, in order. It enters dicts, lists, tuples, sets, and their subclasses; nn.Modules (parameters,
// persistent buffers, submodules, and other attributes only if they hold tensors); and the `__dict__`, slots, or items
// of instances. A shared value gets an entry under each of its names. A value that contains itself is entered once. An
// entry stays an object if it cannot be entered (a call with a tensor as argument, a bare storage), if it exceeds the
// limits, or if its parts would get the names of other entries. Its `hidden_tensors` then counts its tensors that no
// entry names.
// Cost: O(values + entries * depth).
result<taken_apart> take_apart(const torch_file::item& item, std::vector<flat_entry> entries,
                               const flatten_options& options = {});

// Returns the limit on the total bytes of an item's pickled keys. Values that keys share count in each key.
std::size_t most_key_bytes_of(const torch_file::item& item);

// Returns whether there is a tensor or a storage below the value. Cost: O(values).
bool holds_tensors(const torch_file::item& item, const pickle::value& value);

// Returns the limit on entries for an item; see flatten_options::max_entries.
std::size_t most_entries(const torch_file::item& item, const flatten_options& options);

}  // namespace shardmesh::torch_file
