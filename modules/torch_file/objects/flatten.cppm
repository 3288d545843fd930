// SPDX-License-Identifier: Apache-2.0
// torch_flatten: a nested state dict as the flat entries PyTorch's distributed checkpoint makes of it.
// Not here: trees of our own (tree).
export module shardmesh.torch_file:flatten;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.tree;
import :item;

export namespace shardmesh::torch_file {

/// Which release's rule: since 2.4 a dict is always descended into; up to 2.3 one without a tensor below it is a leaf.
/// Lists are descended into when they hold a tensor or (2.4) a dict; tuples never are.
/// A dict below the root is a leaf as well where a key's text needs Python (an enum, an instance).
/// Source: torch.distributed.checkpoint._traverse, traverse_state_dict and traverse_state_dict_v_2_3
enum class flatten_rule : std::uint8_t { torch_2_4, torch_2_3 };

struct flat_entry {
  /// Dict keys, as text (PyTorch takes str() of every key) or integers, and list indices. A key of the root whose str()
  /// needs Python is named "#" and a digest of the key.
  path where;
  std::string fqn;  // the path joined with "."
  pickle::value value;
  std::optional<std::size_t> tensor;  // index into the item's tensors
  /// Tensors in `value` that no entry names; 0 in what `flatten_state_dict` gives.
  std::int64_t hidden_tensors = 0;
};

struct flatten_options {
  flatten_rule rule = flatten_rule::torch_2_4;
  /// Dicts that are empty are entries, where PyTorch loses them: an optimizer's state before its first step.
  bool keep_empty = false;
  /// A dict `KEY.wrapper` that describes a wrapping tensor of which the components lie beside it is an entry.
  bool keep_descriptions = false;
  /// The root may be a list, too, as the value of an item is. One that is not descended into is one entry without a
  /// path.
  bool may_be_list = false;
  /// Of entries. A graph of fewer values than this is held to 100,000, or its own number if that is larger: more come
  /// from references that are shared again and again.
  std::size_t max_entries = 10'000'000;
  std::size_t max_depth = 200;
  /// Of all paths and names together: shared references are entered each time they occur.
  std::size_t max_path_bytes = std::size_t{1} << 30;
};

/// Entries in Python's order of iteration.
/// \errors errc::bad_format when the root is not a mapping (or a list that may be one); errc::unsupported for a mapping
///   inside itself, or beyond the limits; errc::duplicate_key when two paths have one fqn
/// Cost: O(entries * depth).
result<std::vector<flat_entry>> flatten_state_dict(const torch_file::item& item, const pickle::value& root,
                                                   const flatten_options& options = {});

}  // namespace shardmesh::torch_file
