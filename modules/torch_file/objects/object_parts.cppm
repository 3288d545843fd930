// SPDX-License-Identifier: Apache-2.0
// Not exported: objects that hold tensors, taken apart: the tensors become entries with the names that PyTorch's
// state_dict() or flattening would give them. Not here: state dicts themselves (flatten).
module shardmesh.torch_file:object_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :flatten;
import :item;

namespace shardmesh::torch_file {

struct taken_apart {
  std::vector<flat_entry> entries;
  std::vector<std::string> notes;   // what of the objects is not among the entries, one line each
  std::int64_t unread_tensors = 0;  // of these the tensors: not part of what is to be saved, or nothing can carry them
};

// Entries that are objects with tensors below them give way to entries for these tensors and for the plain data beside
// them; all others stay as they are, in order. Entered are dict, list, tuple, set and their subclasses, nn.Module
// (parameters, persistent buffers, modules; other attributes only where they hold tensors), and what instances hold in
// their `__dict__`, slots or items. What shares a value gets it under each of its names; what lies inside itself is
// entered once. An entry that cannot be entered (a call with a tensor among its arguments, a bare storage) or that is
// beyond the limits, or whose parts have the names of others, stays an object with `hidden_tensors`: those of its
// tensors that no entry names.
// Cost: O(values + entries * depth).
result<taken_apart> take_apart(const torch_file::item& item, std::vector<flat_entry> entries,
                               const flatten_options& options = {});

// The bytes that the pickled keys of an item may take together: what keys share is in each of them.
std::size_t most_key_bytes_of(const torch_file::item& item);

// Python's str() of the key is known. Cost: that of the text.
bool has_name(const pickle::value& key);

// Whether a tensor or a storage lies below the value. Cost: O(values).
bool holds_tensors(const torch_file::item& item, const pickle::value& value);

// The limit on entries that suits an item, see flatten_options::max_entries.
std::size_t most_entries(const torch_file::item& item, const flatten_options& options);

}  // namespace shardmesh::torch_file
