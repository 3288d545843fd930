// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.tree;

namespace shardmesh {
namespace {

template <class T>
auto at(std::vector<T>& values, std::size_t i) {
  return values.begin() + static_cast<std::ptrdiff_t>(i);
}
template <class T>
auto at(const std::vector<T>& values, std::size_t i) {
  return values.begin() + static_cast<std::ptrdiff_t>(i);
}

// The first node of the subtree whose root is `node`.
std::size_t first_of(std::span<const tree_node> nodes, std::size_t node) {
  return node + 1 - static_cast<std::size_t>(nodes[node].nodes);
}

bool numbers_children(node_kind kind) {
  return kind == node_kind::sequence || kind == node_kind::tuple;
}

error too_many() {
  return fail(errc::overflow, "a container has too many children").with_values("at most 2147483647", "more");
}

}  // namespace

// The ancestors are the nodes from `first_ancestor` on whose subtree begins at or before `below`.
void tree_editor::add_to(std::size_t first_ancestor, std::size_t below, std::int64_t nodes, std::int64_t leaves) {
  auto& all = spec_->nodes_;
  for (std::size_t node = first_ancestor; node < all.size(); ++node) {
    if (first_of(all, node) > below) continue;
    all[node].nodes += nodes;
    all[node].leaves += leaves;
  }
}

void tree_editor::replace(std::size_t node, const tree_spec& with) {
  auto& nodes = spec_->nodes_;
  auto& keys = spec_->keys_;
  const std::size_t first = first_of(nodes, node);
  add_to(node + 1, first, with.nodes_.back().nodes - nodes[node].nodes, with.nodes_.back().leaves - nodes[node].leaves);
  path_key key = std::move(keys[node]);
  nodes.erase(at(nodes, first), at(nodes, node + 1));
  nodes.insert(at(nodes, first), with.nodes_.begin(), with.nodes_.end());
  keys.erase(at(keys, first), at(keys, node + 1));
  keys.insert(at(keys, first), with.keys_.begin(), with.keys_.end());
  keys[first + with.nodes_.size() - 1] = std::move(key);
}

result<void> tree_editor::append(std::size_t container, path_key key, const tree_spec& child) {
  auto& nodes = spec_->nodes_;
  auto& keys = spec_->keys_;
  if (nodes[container].arity == std::numeric_limits<std::int32_t>::max()) return too_many();
  add_to(container, first_of(nodes, container), child.nodes_.back().nodes, child.nodes_.back().leaves);
  if (numbers_children(nodes[container].kind)) key = std::int64_t{nodes[container].arity};
  ++nodes[container].arity;
  nodes.insert(at(nodes, container), child.nodes_.begin(), child.nodes_.end());
  keys.insert(at(keys, container), child.keys_.begin(), child.keys_.end());
  keys[container + child.nodes_.size() - 1] = std::move(key);
  return {};
}

result<void> tree_editor::append_leaves(std::size_t container, std::int64_t count) {
  auto& nodes = spec_->nodes_;
  const std::int64_t before = nodes[container].arity;
  if (count > std::numeric_limits<std::int32_t>::max() - before) return too_many();
  add_to(container, first_of(nodes, container), count, count);
  nodes[container].arity += static_cast<std::int32_t>(count);
  nodes.insert(at(nodes, container), static_cast<std::size_t>(count), tree_node{});
  std::vector<path_key> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) numbers.emplace_back(before + i);
  spec_->keys_.insert(at(spec_->keys_, container), std::make_move_iterator(numbers.begin()),
                      std::make_move_iterator(numbers.end()));
  return {};
}

void tree_editor::erase(std::size_t node) {
  auto& nodes = spec_->nodes_;
  auto& keys = spec_->keys_;
  const std::size_t first = first_of(nodes, node);
  std::size_t parent = node + 1;
  while (first_of(nodes, parent) > first) ++parent;
  if (numbers_children(nodes[parent].kind))
    for (std::size_t child = parent - 1; child != node; child = first_of(nodes, child) - 1)
      keys[child] = keys[child].index() - 1;
  --nodes[parent].arity;
  add_to(parent, first, -nodes[node].nodes, -nodes[node].leaves);
  nodes.erase(at(nodes, first), at(nodes, node + 1));
  keys.erase(at(keys, first), at(keys, node + 1));
}

tree_spec tree_editor::subtree(const tree_spec& tree, std::size_t node) {
  const std::size_t first = first_of(tree.nodes_, node);
  tree_spec made;
  made.nodes_.assign(at(tree.nodes_, first), at(tree.nodes_, node + 1));
  made.keys_.assign(at(tree.keys_, first), at(tree.keys_, node + 1));
  made.keys_.back() = 0;
  return made;
}

result<tree_spec> tree_editor::graft(const tree_spec& tree, std::span<const leaf_graft> grafts) {
  if (grafts.size() != tree.leaves())
    return fail(errc::invalid_argument, "a graft needs one entry per leaf of the tree")
        .with_values(std::to_string(tree.leaves()), std::to_string(grafts.size()));
  tree_spec made;
  made.nodes_.reserve(tree.nodes_.size());
  made.keys_.reserve(tree.keys_.size());
  struct built {
    std::size_t root;  // in made; meaningless for a dropped leaf
    bool is_dropped;
  };
  std::vector<built> done;  // subtrees whose parent is not built yet
  std::size_t leaf = 0;
  for (std::size_t node = 0; node < tree.nodes_.size(); ++node) {
    const tree_node& n = tree.nodes_[node];
    if (n.kind == node_kind::leaf && grafts[leaf].drop) {
      done.push_back({made.nodes_.size(), true});
      ++leaf;
      continue;
    }
    if (n.kind == node_kind::leaf && grafts[leaf].with != nullptr) {
      const tree_spec& with = *grafts[leaf].with;
      made.nodes_.insert(made.nodes_.end(), with.nodes_.begin(), with.nodes_.end());
      made.keys_.insert(made.keys_.end(), with.keys_.begin(), with.keys_.end());
      made.keys_.back() = tree.keys_[node];
    } else {
      tree_node copy = n;
      if (n.kind != node_kind::leaf) {
        copy = {n.kind, 0, 1, 0};
        const std::size_t first = done.size() - static_cast<std::size_t>(n.arity);
        for (std::size_t i = first; i < done.size(); ++i) {
          if (done[i].is_dropped) continue;
          copy.nodes += made.nodes_[done[i].root].nodes;
          copy.leaves += made.nodes_[done[i].root].leaves;
          if (numbers_children(n.kind)) made.keys_[done[i].root] = std::int64_t{copy.arity};
          ++copy.arity;
        }
        done.erase(at(done, first), done.end());
      }
      made.nodes_.push_back(copy);
      made.keys_.push_back(tree.keys_[node]);
    }
    if (n.kind == node_kind::leaf) ++leaf;
    done.push_back({made.nodes_.size() - 1, false});
  }
  return made;
}

}  // namespace shardmesh
