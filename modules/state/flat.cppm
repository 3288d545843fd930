// SPDX-License-Identifier: Apache-2.0
// flatten and unflatten: convert a state dict to an ordered list of named parts, and back. The rules for names are in
// key_policy of room tree.
export module shardmesh.state:flat;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :dict_tree;
import :value;

export namespace shardmesh {

/// One item of a flattened state dict: a leaf, or a container that the key policy keeps whole (a list of numbers).
template <local_tensor T>
struct named_part {
  std::string name;
  path where;
  std::variant<state_value<T>, state_dict<T>> value;

  bool is_leaf() const { return value.index() == 0; }
  /// The leaf, or null.
  state_value<T>* leaf() { return std::get_if<0>(&value); }
  const state_value<T>* leaf() const { return std::get_if<0>(&value); }
  /// The container, or null.
  state_dict<T>* container() { return std::get_if<1>(&value); }
  const state_dict<T>* container() const { return std::get_if<1>(&value); }
};

/// Returns 1 for each leaf that is a tensor, else 0, as room tree's key policies require.
template <local_tensor T>
std::vector<std::uint8_t> tensor_mask(const state_dict<T>& dict) {
  std::vector<std::uint8_t> mask;
  mask.reserve(dict.size());
  for (const state_value<T>& value : dict.leaves()) mask.push_back(is_tensor(value) ? 1 : 0);
  return mask;
}

/// Returns the names, paths, and leaf ranges of a state dict's items, in order. The dict stays as it is.
/// \errors errc::duplicate_key naming both paths
template <local_tensor T>
result<std::vector<named_item>> items_of(const state_dict<T>& dict, key_policy policy) {
  return flatten(dict.spec(), tensor_mask(dict), policy);
}

/// Converts a state dict to named parts, in order. Values are moved.
/// \errors errc::duplicate_key naming both paths if PyTorch's names collide
/// Cost: O(nodes + total length of names and paths).
/// Source: torch.distributed.checkpoint._nested_dict.flatten_state_dict
template <local_tensor T>
result<std::vector<named_part<T>>> flatten(state_dict<T> dict, key_policy policy) {
  auto items = items_of(dict, policy);
  if (!items) return std::move(items).error();
  std::vector<named_part<T>> parts;
  parts.reserve(items->size());
  const std::span<state_value<T>> leaves = dict.leaves();
  for (named_item& item : *items) {
    named_part<T>& part = parts.emplace_back(std::move(item.name), std::move(item.where));
    if (dict.spec().nodes()[item.node].kind == node_kind::leaf) {
      part.value = std::move(leaves[item.first_leaf]);
      continue;
    }
    const auto first = leaves.begin() + static_cast<std::ptrdiff_t>(item.first_leaf);
    std::vector<state_value<T>> taken(std::make_move_iterator(first),
                                      std::make_move_iterator(first + static_cast<std::ptrdiff_t>(item.leaves)));
    part.value = *state_dict<T>::make(tree_editor::subtree(dict.spec(), item.node), std::move(taken));
  }
  return parts;
}

/// Builds the state dict whose parts have these paths, in any order; names are not read. A container whose keys are all
/// indices becomes a sequence, with empty leaves for missing indices, as in torch.distributed.checkpoint. Tuples,
/// mappings with the keys 0, 1, ..., and (under PyTorch's policies) empty mappings are not restored, since paths do not
/// contain them. To restore them, pass the spec.
/// \errors errc::duplicate_key; errc::invalid_argument if a path continues below the leaf of another or more than
///         2^20 indices are missing; each names the paths
/// Cost: O(nodes + total length of the paths).
/// Source: torch.distributed.checkpoint._nested_dict.unflatten_state_dict
template <local_tensor T>
result<state_dict<T>> unflatten(std::vector<named_part<T>> parts) {
  std::vector<path> paths;
  paths.reserve(parts.size());
  for (named_part<T>& part : parts) paths.push_back(std::move(part.where));
  auto tree = unflatten(paths, {.max_holes = detail::max_made_up_leaves});
  if (!tree) return std::move(tree).error();
  std::vector<leaf_graft> grafts(tree->leaf_order.size());
  std::vector<state_value<T>> leaves;
  leaves.reserve(grafts.size());
  bool has_containers = false;
  for (std::size_t i = 0; i < grafts.size(); ++i) {
    if (tree->leaf_order[i] == unflattened::hole) {
      leaves.emplace_back();
      continue;
    }
    named_part<T>& part = parts[tree->leaf_order[i]];
    if (part.is_leaf()) {
      leaves.push_back(std::move(*part.leaf()));
      continue;
    }
    has_containers = true;
    state_dict<T>& container = *part.container();
    grafts[i].with = &container.spec();
    leaves.insert(leaves.end(), std::make_move_iterator(container.leaves().begin()),
                  std::make_move_iterator(container.leaves().end()));
  }
  if (!has_containers) return state_dict<T>::make(std::move(tree->spec), std::move(leaves));
  auto spec = tree_editor::graft(tree->spec, grafts);
  if (!spec) return std::move(spec).error();
  return state_dict<T>::make(*std::move(spec), std::move(leaves));
}

/// Builds the state dict of this shape with these parts, in any order: the exact inverse of `flatten` under every
/// policy.
/// \param like  the spec of the dict that was flattened
/// \errors errc::missing_key for a part that has no place in the shape, or whose container has another shape;
///         errc::duplicate_key for a place that is filled twice; errc::missing_key for a place without a part; each
///         names the path
/// Cost: O(nodes + total length of the paths) expected.
template <local_tensor T>
result<state_dict<T>> unflatten(std::vector<named_part<T>> parts, tree_spec like) {
  const detail::dict_tree tree(std::move(like));
  std::vector<state_value<T>> leaves(tree.spec().leaves());
  std::vector<bool> filled(leaves.size());
  for (named_part<T>& part : parts) {
    const auto node = tree.find(part.where);
    const bool fits = node && (part.is_leaf() ? tree.spec().nodes()[*node].kind == node_kind::leaf
                                              : tree_editor::subtree(tree.spec(), *node) == part.container()->spec());
    if (!fits) return fail(errc::missing_key, "the tree has no such place for a part").with_key(to_string(part.where));
    const std::size_t first = tree.first_leaf(*node);
    const std::span<state_value<T>> given =
        part.is_leaf() ? std::span<state_value<T>>(part.leaf(), 1) : part.container()->leaves();
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (filled[first + i])
        return fail(errc::duplicate_key, "a place in the tree has two parts").with_key(to_string(part.where));
      filled[first + i] = true;
      leaves[first + i] = std::move(given[i]);
    }
  }
  for (std::size_t i = 0; i < filled.size(); ++i)
    if (!filled[i])
      return fail(errc::missing_key, "a place in the tree has no part")
          .with_key(to_string(tree.spec().leaf_paths()[i]));
  return state_dict<T>::make(tree.spec(), std::move(leaves));
}

}  // namespace shardmesh
