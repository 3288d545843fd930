// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.tree;

namespace shardmesh {

std::vector<std::size_t> tree_spec::children(std::size_t node) const {
  std::vector<std::size_t> found;
  std::size_t child = node;
  for (std::int32_t i = 0; i < nodes_[node].arity; ++i) {
    --child;
    found.push_back(child);
    child -= static_cast<std::size_t>(nodes_[child].nodes) - 1;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::vector<path> tree_spec::node_paths() const {
  std::vector<path> paths(nodes_.size());
  for (std::size_t node = nodes_.size(); node-- > 0;)  // parents before children
    for (const std::size_t child : children(node)) {
      paths[child] = paths[node];
      paths[child].push_back(keys_[child]);
    }
  return paths;
}

std::vector<path> tree_spec::leaf_paths() const {
  std::vector<path> all = node_paths(), found;
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    if (nodes_[node].kind == node_kind::leaf) found.push_back(std::move(all[node]));
  return found;
}

void tree_builder::complain(std::string what) {
  if (problem_.empty()) problem_ = std::move(what);
}

void tree_builder::key(path_key k) {
  if (open_.empty() || open_.back().kind != node_kind::mapping || !next_key_.empty())
    complain("a key where no child of a mapping follows");
  next_key_.assign(1, std::move(k));
}

path_key tree_builder::take_key() {
  if (open_.empty()) {
    if (++roots_ > 1) complain("more than one root");
    return 0;
  }
  open_node& parent = open_.back();
  const std::int64_t position = parent.arity++;
  if (parent.kind != node_kind::mapping) return position;
  if (next_key_.empty()) {
    complain("a child of a mapping without a key");
    return position;
  }
  path_key taken = std::move(next_key_.front());
  next_key_.clear();
  return taken;
}

void tree_builder::close(tree_node node, path_key key) {
  if (!open_.empty()) open_.back().leaves += node.leaves;
  made_.nodes_.push_back(node);
  made_.keys_.push_back(std::move(key));
}

void tree_builder::leaf() {
  close({}, take_key());
}

void tree_builder::begin(node_kind container) {
  if (container == node_kind::leaf) complain("a leaf is not a container");
  path_key own = take_key();
  open_.push_back({container, 0, static_cast<std::int64_t>(made_.nodes_.size()), 0, std::move(own)});
}

void tree_builder::end() {
  if (open_.empty()) return complain("an end without a begin");
  if (!next_key_.empty()) complain("a key without a child");
  open_node done = std::move(open_.back());
  open_.pop_back();
  close({done.kind, done.arity, static_cast<std::int64_t>(made_.nodes_.size()) - done.first_node + 1, done.leaves},
        std::move(done.own_key));
}

result<tree_spec> tree_builder::finish() {
  if (!open_.empty()) complain("a container that is not ended");
  if (roots_ == 0) complain("no root");
  tree_spec made = std::exchange(made_, {});
  const std::string problem = std::exchange(problem_, {});
  open_.clear();
  next_key_.clear();
  roots_ = 0;
  if (!problem.empty()) return fail(errc::invalid_argument, "a tree was built wrongly: " + problem);
  for (std::size_t node = 0; node < made.nodes_.size(); ++node) {
    if (made.nodes_[node].kind != node_kind::mapping) continue;
    std::vector<const path_key*> keys;
    for (const std::size_t child : made.children(node)) keys.push_back(&made.keys_[child]);
    std::sort(keys.begin(), keys.end(), [](auto a, auto b) { return *a < *b; });
    for (std::size_t i = 1; i < keys.size(); ++i)
      if (*keys[i] == *keys[i - 1]) {
        path where = made.node_paths()[node];
        where.push_back(*keys[i]);
        return fail(errc::duplicate_key, "a mapping has a key twice").with_key(to_string(where));
      }
  }
  return made;
}

namespace {

// A node while paths are inserted.
struct trie_node {
  std::map<path_key, std::size_t> children;
  std::vector<std::pair<path_key, std::size_t>> order;  // of first appearance
  std::optional<std::size_t> leaf;                      // which path ends here
};

bool is_sequence(const trie_node& n) {
  std::int64_t next = 0;
  for (const auto& [key, child] : n.children)
    if (!key.is_index() || key.index() != next++) return false;
  return !n.children.empty();
}

}  // namespace

result<unflattened> unflatten(std::span<const path> paths) {
  std::vector<trie_node> trie(1);
  const auto through = [&](std::size_t a, std::size_t b) {
    return fail(errc::invalid_argument, "one path leads through another")
        .with_values(to_string(paths[a]), to_string(paths[b]));
  };
  std::vector<std::size_t> some_path(1, 0);  // per node: a path that runs through it
  for (std::size_t p = 0; p < paths.size(); ++p) {
    std::size_t at = 0;
    for (const path_key& key : paths[p]) {
      if (trie[at].leaf) return through(*trie[at].leaf, p);
      const auto [entry, is_new] = trie[at].children.try_emplace(key, trie.size());
      const std::size_t next = entry->second;
      if (is_new) {
        trie[at].order.emplace_back(key, next);
        trie.emplace_back();
        some_path.push_back(p);
      }
      at = next;
    }
    if (trie[at].leaf) return fail(errc::duplicate_key, "a path occurs twice").with_key(to_string(paths[p]));
    if (!trie[at].children.empty()) return through(p, some_path[at]);
    trie[at].leaf = p;
  }

  unflattened made;
  tree_builder builder;
  struct visit {
    std::size_t node;
    std::vector<std::pair<path_key, std::size_t>> children;
    std::size_t next = 0;
  };
  std::vector<visit> open;
  const auto enter = [&](std::size_t node) {
    if (trie[node].leaf) {
      builder.leaf();
      made.leaf_order.push_back(*trie[node].leaf);
      return;
    }
    const bool sequence = is_sequence(trie[node]);
    builder.begin(sequence ? node_kind::sequence : node_kind::mapping);
    if (sequence)
      open.push_back({node, {trie[node].children.begin(), trie[node].children.end()}});
    else
      open.push_back({node, trie[node].order});
  };
  enter(0);
  while (!open.empty()) {
    visit& v = open.back();
    if (v.next == v.children.size()) {
      builder.end();
      open.pop_back();
      continue;
    }
    const auto [key, child] = v.children[v.next++];
    if (!is_sequence(trie[v.node])) builder.key(key);
    enter(child);
  }
  auto spec = builder.finish();
  if (!spec) return std::move(spec).take_error();
  made.spec = *std::move(spec);
  return made;
}

}  // namespace shardmesh
