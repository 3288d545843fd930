// SPDX-License-Identifier: Apache-2.0
// state_dict<T>: nested containers of tensors and plain values, stored as a flat tree and a list of its leaves. Walking
// it is in node, building it in one pass in builder, the names of its items in flat, and comparing in difference.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.state:dict;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict_tree;
import :value;

export namespace shardmesh {

template <local_tensor T>
class state_dict;

/// The options of `equal`.
struct state_compare_options {
  bool tensor_values = true;  // compare elements of tensors, not only their metadata
};

/// Returns whether two state dicts have the same paths, with equal values at each. The order of a mapping's keys does
/// not count. Tensors are equal if their dtypes, sizes, properties, devices, and (with `tensor_values`) elements are
/// equal. Sharded tensors are equal if their metadata, groups, and local shards are. Elements are compared as kernels'
/// `compare` does (NaN equals NaN); elements on a device are first copied to the host. Tensors that no backend reaches
/// are equal only if they are the same memory.
/// Cost: O(nodes + elements). No recursion over user data.
template <local_tensor T>
bool equal(const state_dict<T>& a, const state_dict<T>& b, const state_compare_options& options);

/// Nested mappings, sequences, and tuples of `state_value<T>`. A value type: it can be copied if T can.
///
/// Paths are typed: the index 0 and the name "0" are different keys. In sequences and tuples a negative index counts
/// from the end. `spec()` is the shape, a flat tree; `leaves()` are its leaves in the same order.
/// Source: the nested dicts of torch.nn.Module.state_dict and torch.distributed.checkpoint. `set` and `find` correspond
/// to set_element and get_element of torch.distributed.checkpoint._traverse.
template <local_tensor T>
class state_dict {
 public:
  using tensor_type = T;
  using value_type = state_value<T>;

  /// An empty mapping.
  state_dict() = default;
  state_dict(state_dict&&) noexcept = default;
  state_dict& operator=(state_dict&&) noexcept = default;
  state_dict(const state_dict&)
    requires std::copy_constructible<T>
  = default;
  state_dict& operator=(const state_dict&)
    requires std::copy_constructible<T>
  = default;
  ~state_dict() = default;

  /// Makes a state dict of this shape with these leaves, in leaf order.
  /// \errors errc::invalid_argument if their number differs from the spec's, or the spec is empty
  /// Cost: O(1).
  static result<state_dict> make(tree_spec spec, std::vector<value_type> leaves) {
    if (spec.nodes().empty() || spec.leaves() != leaves.size())
      return fail(errc::invalid_argument, "the number of leaves is not that of the state dict's tree")
          .with_values(std::to_string(spec.leaves()) + " leaves", std::to_string(leaves.size()));
    state_dict made;
    made.tree_ = detail::dict_tree(std::move(spec));
    made.leaves_ = std::move(leaves);
    return made;
  }

  const tree_spec& spec() const { return tree_.spec(); }
  /// In the order of the tree's leaves.
  std::span<value_type> leaves() { return leaves_; }
  std::span<const value_type> leaves() const { return leaves_; }
  std::vector<value_type> take_leaves() && { return std::move(leaves_); }
  /// The number of leaves.
  std::size_t size() const { return leaves_.size(); }
  bool empty() const { return leaves_.empty(); }

  /// Returns the leaf at a path, or null if the path leads nowhere or to a container. Valid until the dict is changed.
  /// Cost: O(keys) expected; O(nodes) the first time after a change. Safe from several threads at once.
  value_type* find(const path& where) {
    const auto leaf = leaf_at(where);
    return leaf ? &leaves_[*leaf] : nullptr;
  }
  const value_type* find(const path& where) const {
    const auto leaf = leaf_at(where);
    return leaf ? &leaves_[*leaf] : nullptr;
  }
  /// Returns whether the path leads to a leaf or a container. Cost: as `find`.
  bool contains(const path& where) const { return tree_.find(where).has_value(); }
  /// The kind of the node at a path; nothing if there is none. Cost: as `find`.
  std::optional<node_kind> kind(const path& where) const {
    const auto node = tree_.find(where);
    return node ? std::optional(spec().nodes()[*node].kind) : std::nullopt;
  }

  /// Puts a value at a path; it replaces the leaf or the whole container there. For missing containers on the way, a
  /// name makes a mapping and an index makes a sequence. An empty leaf of a sequence becomes a container if the path
  /// continues. A sequence is extended with empty leaves up to the index.
  /// \errors leave the dict unchanged. errc::invalid_argument: the empty path, a path through a leaf, a name in a
  ///         sequence; errc::out_of_bounds: more than 2^20 empty leaves, a negative index beyond the first element, a
  ///         tuple that would grow. Each names the path.
  /// Cost: O(keys) expected to replace a leaf, or to add at the end of the dict; O(nodes) to add anywhere else. To add
  ///       many values, use `state_dict_builder`.
  /// Source: torch.distributed.checkpoint._traverse.set_element (which fails for a new index key in a mapping)
  result<void> set(const path& where, value_type value) {
    auto edit = tree_.set(where, [&](std::size_t leaf) { return leaves_[leaf].is_none(); });
    if (!edit) return std::move(edit).error();
    apply(*edit, std::move(value));
    return {};
  }
  /// Refuses a value that a state dict cannot hold.
  template <class V>
    requires(!std::constructible_from<value_type, V>)
  result<void> set(const path& where, V&& value) = SHARDMESH_REFUSE(
      "a state dict holds tensors of its own type T, sharded tensors and dtensors of it, numbers, bool, strings and "
      "bytes: adapt another tensor, or std::move one that does not copy");

  /// Removes a leaf or a whole container; later elements of its sequence move up.
  /// \errors errc::missing_key; errc::invalid_argument for the empty path and for elements of tuples; each names the
  ///         path
  /// Cost: O(nodes).
  result<void> erase(const path& where) {
    auto edit = tree_.erase(where);
    if (!edit) return std::move(edit).error();
    apply(*edit, {});
    return {};
  }

  /// Copies the subtree at a path into a state dict (of one leaf, if a leaf is there). \errors errc::missing_key
  /// Cost: O(its nodes).
  result<state_dict> subtree(const path& where) const
    requires std::copy_constructible<T>
  {
    const auto node = tree_.find(where);
    if (!node) return fail(errc::missing_key, "the state dict has no such entry").with_key(to_string(where));
    const auto first = leaves_.begin() + static_cast<std::ptrdiff_t>(tree_.first_leaf(*node));
    return make(tree_editor::subtree(spec(), *node),
                std::vector<value_type>(first, first + static_cast<std::ptrdiff_t>(spec().nodes()[*node].leaves)));
  }
  /// Moves a subtree out and leaves the rest: `subtree` and `erase` without copies. \errors as `erase`
  result<state_dict> extract(const path& where) {
    const auto node = tree_.find(where);
    tree_spec part = node ? tree_editor::subtree(spec(), *node) : tree_spec();
    auto edit = tree_.erase(where);
    if (!edit) return std::move(edit).error();
    const auto first = leaves_.begin() + static_cast<std::ptrdiff_t>(edit->first);
    const auto last = first + static_cast<std::ptrdiff_t>(edit->removed);
    std::vector<value_type> taken(std::make_move_iterator(first), std::make_move_iterator(last));
    leaves_.erase(first, last);
    return make(std::move(part), std::move(taken));
  }

  /// `equal` with its default options.
  friend bool operator==(const state_dict& a, const state_dict& b) { return equal(a, b, state_compare_options{}); }

  /// Internal to the room: the child of a node at a key, and the first leaf of a node.
  std::optional<std::size_t> child_of(std::size_t node, const path_key& key) const { return tree_.child(node, key); }
  std::size_t first_leaf_of(std::size_t node) const { return tree_.first_leaf(node); }

 private:
  std::optional<std::size_t> leaf_at(const path& where) const {
    const auto node = tree_.find(where);
    if (!node || spec().nodes()[*node].kind != node_kind::leaf) return std::nullopt;
    return tree_.first_leaf(*node);
  }
  void apply(const detail::leaf_edit& edit, value_type value) {
    const auto first = leaves_.begin() + static_cast<std::ptrdiff_t>(edit.first);
    if (edit.removed == 1 && edit.nones == 0 && edit.has_value) {
      *first = std::move(value);
      return;
    }
    std::vector<value_type> added(edit.nones);
    if (edit.has_value) added.push_back(std::move(value));
    const auto at = leaves_.erase(first, first + static_cast<std::ptrdiff_t>(edit.removed));
    leaves_.insert(at, std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  }

  detail::dict_tree tree_;
  std::vector<value_type> leaves_;
};

}  // namespace shardmesh
