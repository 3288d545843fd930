// SPDX-License-Identifier: Apache-2.0
// transform: keeps, replaces (by a leaf or a whole dict), or drops each leaf of a state dict. To change containers, use
// room tree's transform on dict_node.
export module shardmesh.state:transform_leaves;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :value;

export namespace shardmesh {

/// The change to a leaf.
template <local_tensor T>
class leaf_change {
 public:
  static leaf_change keep() { return leaf_change(); }
  static leaf_change drop() { return leaf_change(std::in_place_index<1>); }
  static leaf_change replace(state_value<T> with) { return leaf_change(std::in_place_index<2>, std::move(with)); }
  /// The leaf becomes this dict: a container, or (for a dict of one leaf) a leaf.
  static leaf_change replace(state_dict<T> with) { return leaf_change(std::in_place_index<3>, std::move(with)); }

  bool is_kept() const { return change_.index() == 0; }
  bool is_dropped() const { return change_.index() == 1; }
  /// The replacement, or null.
  state_value<T>* leaf() { return std::get_if<2>(&change_); }
  state_dict<T>* dict() { return std::get_if<3>(&change_); }

 private:
  struct dropped {};
  template <class... Arguments>
  explicit leaf_change(Arguments&&... arguments) : change_(std::forward<Arguments>(arguments)...) {}
  std::variant<std::monostate, dropped, state_value<T>, state_dict<T>> change_;
};

/// `f(const path&, state_value<T>& leaf) -> leaf_change<T>`. It may write to a leaf that it keeps, and move out of any
/// other.
template <class F, class T>
concept leaf_transformer = std::invocable<F&, const path&, state_value<T>&> &&
                           std::same_as<std::invoke_result_t<F&, const path&, state_value<T>&>, leaf_change<T>>;

/// Applies f to each leaf, in order, with the paths of the old dict. Containers stay, even if all their leaves are
/// dropped; elements after a dropped one move up.
/// \errors errc::invalid_argument if the dict is one leaf and f drops it
/// Cost: O(nodes + total length of the paths). No recursion.
template <local_tensor T, leaf_transformer<T> F>
result<state_dict<T>> transform(state_dict<T> dict, F&& f) {
  const std::vector<path> paths = dict.spec().leaf_paths();
  std::vector<leaf_graft> grafts(dict.size());
  std::vector<leaf_change<T>> changes;
  changes.reserve(dict.size());
  bool changes_shape = false;
  for (std::size_t i = 0; i < dict.size(); ++i) {
    leaf_change<T>& change = changes.emplace_back(f(paths[i], dict.leaves()[i]));
    grafts[i].drop = change.is_dropped();
    if (change.dict() != nullptr) grafts[i].with = &change.dict()->spec();
    changes_shape |= grafts[i].drop || grafts[i].with != nullptr;
  }
  std::vector<state_value<T>> leaves;
  leaves.reserve(dict.size());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].is_kept()) {
      leaves.push_back(std::move(dict.leaves()[i]));
    } else if (state_value<T>* leaf = changes[i].leaf()) {
      leaves.push_back(std::move(*leaf));
    } else if (state_dict<T>* with = changes[i].dict()) {
      leaves.insert(leaves.end(), std::make_move_iterator(with->leaves().begin()),
                    std::make_move_iterator(with->leaves().end()));
    }
  }
  if (!changes_shape) return state_dict<T>::make(dict.spec(), std::move(leaves));
  auto spec = tree_editor::graft(dict.spec(), grafts);
  if (!spec) return std::move(spec).error();
  if (spec->nodes().empty()) return fail(errc::invalid_argument, "the callback drops the only leaf of the state dict");
  return state_dict<T>::make(*std::move(spec), std::move(leaves));
}

}  // namespace shardmesh
