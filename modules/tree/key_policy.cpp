// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <try.hpp>
module shardmesh.tree;

namespace shardmesh {
namespace {

// Which nodes a policy keeps whole, by post-order: children are judged before their parent.
std::vector<bool> kept_whole(const tree_spec& tree, std::span<const std::uint8_t> is_tensor, key_policy policy) {
  const auto nodes = tree.nodes();
  std::vector<bool> whole(nodes.size(), true);
  std::size_t leaf = 0;
  std::vector<bool> tensor(nodes.size(), false);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const tree_node& n = nodes[node];
    if (n.kind == node_kind::leaf) {
      tensor[node] = is_tensor[leaf++] != 0;
      continue;
    }
    if (policy == key_policy::typed) {
      whole[node] = n.arity == 0;
      continue;
    }
    if (n.kind == node_kind::tuple) continue;
    if (n.kind == node_kind::mapping && policy == key_policy::torch_dcp) {
      whole[node] = false;
      continue;
    }
    for (const std::size_t child : tree.children(node)) {
      const bool container = nodes[child].kind == node_kind::mapping || nodes[child].kind == node_kind::sequence;
      if (tensor[child] || (container && !whole[child])) whole[node] = false;
    }
  }
  // PyTorch enters the outermost mapping whatever is in it.
  if (policy == key_policy::torch_dcp_2_3 && !nodes.empty() && nodes.back().kind == node_kind::mapping)
    whole.back() = false;
  return whole;
}

}  // namespace

result<std::vector<std::string>> names_of(std::span<const path> paths, key_policy policy) {
  std::vector<std::string> names;
  std::unordered_map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    names.push_back(policy == key_policy::typed ? to_string(paths[i]) : dotted(paths[i]));
    const auto [entry, is_new] = first.try_emplace(names.back(), i);
    if (!is_new)
      return fail(errc::duplicate_key,
                  "the paths " + to_string(paths[entry->second]) + " and " + to_string(paths[i]) + " have one name")
          .with_key(names.back());
  }
  return names;
}

result<std::vector<named_item>> flatten(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                        key_policy policy) {
  if (is_tensor.size() != tree.leaves())
    return fail(errc::invalid_argument, "is_tensor does not fit the tree")
        .with_values(std::to_string(tree.leaves()), std::to_string(is_tensor.size()));
  const auto nodes = tree.nodes();
  const std::vector<bool> whole = kept_whole(tree, is_tensor, policy);
  std::vector<path> paths = tree.node_paths();
  // A node is an item when it is whole and no container above it is. Walk down from the root, parents first.
  std::vector<bool> reached(nodes.size(), false);
  std::vector<std::size_t> last_leaf(nodes.size());  // leaves up to and including this subtree
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind == node_kind::leaf) ++leaf;
    last_leaf[node] = leaf;
  }
  if (!nodes.empty()) reached[nodes.size() - 1] = true;
  for (std::size_t node = nodes.size(); node-- > 0;)
    if (reached[node] && !whole[node])
      for (const std::size_t child : tree.children(node)) reached[child] = true;
  std::vector<named_item> items;
  std::vector<path> item_paths;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (!reached[node] || !whole[node]) continue;
    const auto leaves = static_cast<std::size_t>(nodes[node].leaves);
    items.push_back({{}, paths[node], node, last_leaf[node] - leaves, leaves});
    item_paths.push_back(std::move(paths[node]));
  }
  SHARDMESH_TRY(auto names, names_of(item_paths, policy));
  for (std::size_t i = 0; i < items.size(); ++i) items[i].name = std::move(names[i]);
  return items;
}

}  // namespace shardmesh
