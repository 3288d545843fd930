// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :planner_paths;

namespace shardmesh::dcp {
namespace {

// The tree that the paths form, as PyTorch would flatten it again.
class nesting {
 public:
  nesting(const unflattened& tree, std::size_t tensor_count)
      : nodes_(tree.spec.nodes()), keys_(tree.spec.keys()), parents_(tree.spec.parents()) {
    std::vector<std::uint8_t> is_tensor;
    for (const std::size_t entry : tree.leaf_order) is_tensor.push_back(entry < tensor_count ? 1 : 0);
    is_whole_ = kept_whole(tree.spec, is_tensor, key_policy::torch_dcp);
    find_lists();
  }

  bool comes_back() const { return comes_back_; }

  // Returns, for each leaf in order, the number of keys of its path that stay; the rest becomes one name. `whole`: all
  // stay.
  static constexpr std::size_t whole = static_cast<std::size_t>(-1);
  std::vector<std::size_t> kept_keys() const {
    std::vector<std::size_t> kept(nodes_.size(), whole), depth(nodes_.size()), of_leaves;
    for (std::size_t node = nodes_.size(); node-- > 0;) {
      const std::size_t parent = parents_[node];
      if (node != parent) depth[node] = depth[parent] + 1;
      if (node != parent && kept[parent] != whole)
        kept[node] = kept[parent];
      else if (is_lost_[node])
        kept[node] = depth[node] == 0 ? 0 : depth[node] - 1;
    }
    for (std::size_t node = 0; node < nodes_.size(); ++node)
      if (nodes_[node].kind == node_kind::leaf) of_leaves.push_back(kept[node]);
    return of_leaves;
  }

 private:
  // Flattening does not restore some lists. The lists around such a list lose an element, so they are lost as well.
  void find_lists() {
    const std::size_t count = nodes_.size();
    std::vector<std::size_t> outermost(count);  // for nested lists: the outermost one
    std::vector<bool> has_gaps(count);
    for (std::size_t node = count; node-- > 0;) {
      const std::size_t parent = parents_[node];
      const bool is_element = node != parent && keys_[node].is_index();
      outermost[node] = is_element ? outermost[parent] : node;
      if (is_element && nodes_[parent].kind == node_kind::mapping) has_gaps[parent] = true;
    }
    is_lost_.resize(count);
    for (std::size_t node = 0; node < count; ++node) {
      const bool is_list = nodes_[node].kind == node_kind::sequence;
      const bool is_root = node + 1 == count;
      if (!has_gaps[node] && !(is_list && (is_root || is_whole_[node] != 0))) continue;
      is_lost_[outermost[node]] = true;
      comes_back_ = false;
    }
  }

  std::span<const tree_node> nodes_;
  std::span<const path_key> keys_;
  std::vector<std::size_t> parents_;
  std::vector<std::uint8_t> is_whole_;
  std::vector<bool> is_lost_;
  bool comes_back_ = true;
};

// Joins the path ends that cannot be nested. Returns false when the paths contradict each other, or flattening still
// does not restore them.
bool join_lost(std::vector<path>& paths, std::size_t tensor_count) {
  const auto tree = unflatten(paths);
  if (!tree) return false;
  const nesting nested(*tree, tensor_count);
  if (nested.comes_back()) return true;
  const std::vector<std::size_t> kept = nested.kept_keys();
  for (std::size_t leaf = 0; leaf < kept.size(); ++leaf) {
    path& where = paths[tree->leaf_order[leaf]];
    if (kept[leaf] == nesting::whole) continue;
    path shorter(std::vector<path_key>(where.begin(), where.begin() + kept[leaf]));
    shorter.push_back(dotted(where, kept[leaf]));
    where = std::move(shorter);
  }
  const auto again = unflatten(paths);
  return again && nesting(*again, tensor_count).comes_back();
}

}  // namespace

std::vector<path> planner_paths(std::span<const output_tensor> tensors, std::span<const output_object> objects) {
  std::vector<path> paths;
  paths.reserve(tensors.size() + objects.size());
  bool is_nested = false;
  const auto add = [&](const std::string& key, const path& where) {
    const bool fits = !where.empty() && dotted(where) == key;
    paths.push_back(fits ? torch_file::with_text_keys(where) : path{key});
    is_nested |= fits && (where.size() > 1 || where[0].is_index());
  };
  for (const output_tensor& tensor : tensors) add(tensor.key, tensor.where);
  for (const output_object& object : objects) add(object.key, object.where);
  if (!is_nested || join_lost(paths, tensors.size())) return paths;
  for (std::size_t i = 0; i < paths.size(); ++i)
    paths[i] = path{i < tensors.size() ? tensors[i].key : objects[i - tensors.size()].key};
  return paths;
}

}  // namespace shardmesh::dcp
