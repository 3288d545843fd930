// SPDX-License-Identifier: Apache-2.0
// dict_tree: the shape of a state dict with an index of its paths. An edit reports the matching change of the leaves.
// The values themselves are stored elsewhere. Internal to the room.
export module shardmesh.state:dict_tree;

import shardmesh.std;
import shardmesh.tree;

namespace shardmesh::detail {

/// The change of the leaves that matches an edit of the tree: from `first` on, remove `removed` leaves and insert
/// `nones` empty ones, followed by the new value (if `has_value`).
struct leaf_edit {
  std::size_t first = 0, removed = 0, nones = 0;
  bool has_value = false;
};

/// The most empty leaves that one call adds to reach an index.
inline constexpr std::int64_t max_made_up_leaves = std::int64_t{1} << 20;

class path_index;

class dict_tree {
 public:
  /// An empty mapping.
  dict_tree();
  /// Precondition: the spec has a root.
  explicit dict_tree(tree_spec spec) : spec_(std::move(spec)) {}
  dict_tree(const dict_tree& other) : spec_(other.spec_) {}
  dict_tree(dict_tree&& other) noexcept : spec_(std::move(other.spec_)), index_(other.index_.exchange(nullptr)) {}
  dict_tree& operator=(dict_tree other) noexcept;
  ~dict_tree();

  const tree_spec& spec() const { return spec_; }
  /// Safe to call from several threads at once. Cost: O(keys) expected; O(nodes) the first time after a change.
  std::optional<std::size_t> find(const path& where) const;
  std::optional<std::size_t> child(std::size_t node, const path_key& key) const;
  /// Returns the first leaf of a node's subtree. Cost: as `find`.
  std::size_t first_leaf(std::size_t node) const;

  /// Makes a leaf at this path. `is_none(leaf)` tells whether a leaf is empty.
  result<leaf_edit> set(const path& where, function_ref<bool(std::size_t leaf)> is_none);
  result<leaf_edit> erase(const path& where);

 private:
  const path_index& index() const;
  void forget_index();
  void added(std::size_t at, std::size_t count);
  result<leaf_edit> add_child(std::size_t container, const path& where, std::size_t depth);
  tree_spec spec_;
  mutable std::atomic<path_index*> index_ = nullptr;
};

}  // namespace shardmesh::detail
