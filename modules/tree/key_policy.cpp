// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <position_table.hpp>
#include <shardmesh/try.hpp>
module shardmesh.tree;

import :spelling;

namespace shardmesh {
// Works in post-order, so that children are decided before their parent.
std::vector<std::uint8_t> kept_whole(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                     key_policy policy) {
  const auto nodes = tree.nodes();
  std::vector<std::uint8_t> whole(nodes.size(), 1);
  if (policy == key_policy::typed) {
    for (std::size_t node = 0; node < nodes.size(); ++node) whole[node] = nodes[node].arity == 0;
    return whole;
  }
  const std::vector<std::size_t> parents = tree.parents();
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const tree_node& n = nodes[node];
    const bool is_mapping = n.kind == node_kind::mapping;
    if (is_mapping && policy == key_policy::torch_dcp) whole[node] = 0;
    // A container is entered when it contains a tensor or an entered container; a tuple never is.
    const bool counts = n.kind == node_kind::leaf ? is_tensor[leaf++] != 0 : whole[node] == 0;
    const std::size_t parent = parents[node];
    if (counts && parent != node && nodes[parent].kind != node_kind::tuple) whole[parent] = 0;
  }
  // PyTorch enters the outermost mapping whatever its contents.
  if (!nodes.empty() && nodes.back().kind == node_kind::mapping) whole.back() = 0;
  return whole;
}

namespace {

std::size_t count_items(std::span<const tree_node> nodes, const std::vector<std::uint8_t>& whole) {
  std::size_t count = 0;
  for (std::size_t node = nodes.size(); node > 0;) {
    --node;
    if (!whole[node]) continue;
    ++count;
    node -= static_cast<std::size_t>(nodes[node].nodes) - 1;
  }
  return count;
}

// Returns whether two items can have the same dotted name. Two such paths part in one mapping, where one key's text
// equals the other's or continues it after a dot. Most trees therefore need no comparison of names.
bool names_may_collide(const tree_spec& tree) {
  constexpr std::int32_t few = 16;
  const auto nodes = tree.nodes();
  const auto keys = tree.keys();
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind != node_kind::mapping) continue;
    std::array<std::string_view, few> names;
    std::size_t dotted = 0, indices = 0, count = 0;
    std::size_t child = node;
    for (std::int32_t i = 0; i < nodes[node].arity; ++i) {
      const path_key& key = keys[--child];
      child -= static_cast<std::size_t>(nodes[child].nodes) - 1;
      if (key.is_index()) {
        ++indices;
        continue;
      }
      dotted += key.name().find('.') != std::string_view::npos;
      if (count < few) names[count] = key.name();
      ++count;
    }
    if (indices > 0 && count > 0) return true;
    if (dotted == 0) continue;
    if (count > few) return true;
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count; ++j)
        if (names[i].size() > names[j].size() && names[i][names[j].size()] == '.' && names[i].starts_with(names[j]))
          return true;
  }
  return false;
}

// Returns the positions of the first name that occurred before, and of its earlier occurrence.
std::optional<std::pair<std::size_t, std::size_t>> first_duplicate(std::span<const std::string* const> names) {
  detail::position_table met(names.size());
  const auto hash_of = [&](std::size_t at) { return std::hash<std::string>{}(*names[at]); };
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint64_t hash = hash_of(i);
    const std::size_t same = met.find(hash, [&](std::size_t other) { return *names[other] == *names[i]; });
    if (same != met.none) return {{same, i}};
    met.insert(hash, i, hash_of);
  }
  return std::nullopt;
}

error one_name(const path& a, const path& b, const std::string& name) {
  return fail(errc::duplicate_key, "the paths " + to_string(a) + " and " + to_string(b) + " have the same name")
      .with_key(name)
      .with_hint("use key_policy::typed, which gives every path its own name");
}

// A container that is being named. Its children's names begin with the first `name_length` characters.
struct open_container {
  const path_key* key;
  std::int32_t children_left;
  std::size_t name_length;
};

}  // namespace

result<std::vector<std::string>> names_of(std::span<const path> paths, key_policy policy) {
  std::vector<std::string> names;
  std::vector<const std::string*> pointers;
  names.reserve(paths.size());
  for (const path& p : paths) {
    names.push_back(policy == key_policy::typed ? to_string(p) : dotted(p));
    pointers.push_back(&names.back());
  }
  if (const auto same = first_duplicate(pointers))
    return one_name(paths[same->first], paths[same->second], names[same->second]);
  return names;
}

result<std::vector<named_item>> items_of(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                         key_policy policy) {
  if (is_tensor.size() != tree.leaves())
    return fail(errc::invalid_argument, "is_tensor needs one value per leaf of the tree")
        .with_values(std::to_string(tree.leaves()), std::to_string(is_tensor.size()));
  const auto nodes = tree.nodes();
  const auto keys = tree.keys();
  const std::vector<std::uint8_t> whole = kept_whole(tree, is_tensor, policy);
  // Works backwards, so that parents precede children: a whole node is an item, and the nodes below it are skipped.
  std::vector<named_item> items(count_items(nodes, whole));
  std::size_t at = items.size();
  std::vector<open_container> open;
  std::string name;
  std::size_t leaf = tree.leaves();
  for (std::size_t node = nodes.size(); node > 0;) {
    const tree_node& n = nodes[--node];
    while (!open.empty() && open.back().children_left == 0) open.pop_back();
    if (open.empty()) {
      name.clear();
    } else {
      --open.back().children_left;
      name.resize(open.back().name_length);
      append_key(name, keys[node], open.size() == 1, policy);
    }
    if (!whole[node]) {
      open.push_back({&keys[node], n.arity, name.size()});
      continue;
    }
    leaf -= static_cast<std::size_t>(n.leaves);
    named_item& item = items[--at];
    item.name = name;
    item.node = node;
    item.first_leaf = leaf;
    item.leaves = static_cast<std::size_t>(n.leaves);
    if (!open.empty()) {
      item.where.reserve(open.size());
      for (std::size_t i = 1; i < open.size(); ++i) item.where.push_back(*open[i].key);
      item.where.push_back(keys[node]);
    }
    node -= static_cast<std::size_t>(n.nodes) - 1;
  }
  return items;
}

result<std::vector<named_item>> flatten(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                        key_policy policy) {
  SHARDMESH_TRY(auto items, items_of(tree, is_tensor, policy));
  if (policy == key_policy::typed) return items;  // different paths have different exact texts
  if (!names_may_collide(tree)) return items;
  std::vector<const std::string*> names;
  names.reserve(items.size());
  for (const named_item& item : items) names.push_back(&item.name);
  if (const auto same = first_duplicate(names))
    return one_name(items[same->first].where, items[same->second].where, items[same->second].name);
  return items;
}

}  // namespace shardmesh
