// SPDX-License-Identifier: Apache-2.0
// Flattens a nested state dict into the entries that PyTorch's distributed checkpoint makes of it. Trees of our own are
// in room tree, and so are the rules.
export module shardmesh.torch_file:flatten;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.tree;
import :item;

export namespace shardmesh::torch_file {

struct flat_entry {
  /// Dict keys, as text (PyTorch takes str() of every key) or integers, and list indices. If only Python can give the
  /// str() of a key of the root, its name is "#" and a digest of the key.
  path where;
  std::string fqn;  // the path joined with "."
  pickle::value value;
  std::optional<std::size_t> tensor;  // index into the item's tensors
  /// Tensors in `value` that no entry names. `flatten_state_dict` leaves it 0; `take_apart` fills it.
  std::int64_t hidden_tensors = 0;
};

struct flatten_options {
  key_policy policy = key_policy::torch_dcp;  // or torch_dcp_2_3; `typed` is for trees of our own
  /// Makes empty dicts entries, such as an optimizer's state before its first step. PyTorch drops them.
  bool keep_empty = false;
  /// Makes a dict `KEY.wrapper` one entry if it describes a wrapping tensor, whose components are entries beside it.
  bool keep_descriptions = false;
  /// Allows a list as the root, as the value of an item may be one. A list that is a leaf becomes one entry without a
  /// path.
  bool may_be_list = false;
  /// Limit on the entries. An item whose graph has fewer values gets a lower limit: its number of values, or 100,000 if
  /// that is larger. More entries can only come from shared references.
  std::size_t max_entries = 10'000'000;
  std::size_t max_depth = 200;
  /// Limit on the bytes of all paths and names. Shared references count each time they occur.
  std::size_t max_path_bytes = std::size_t{1} << 30;
};

/// Returns the entries in Python's order of iteration. Containers are entered as `key_policy` says. In addition, a dict
/// below the root stays whole if only Python can give the text of one of its keys (an enum, an instance).
/// \errors errc::bad_format when the root is not a mapping (or an allowed list); errc::unsupported for a mapping inside
///   itself, or beyond the limits; errc::duplicate_key when two paths have the same fqn; errc::invalid_argument for
///   `key_policy::typed`
/// Cost: O(entries * depth).
result<std::vector<flat_entry>> flatten_state_dict(const torch_file::item& item, const pickle::value& root,
                                                   const flatten_options& options = {});

}  // namespace shardmesh::torch_file
