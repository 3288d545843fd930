// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.tree;

namespace shardmesh {

std::vector<std::size_t> tree_spec::children(std::size_t node) const {
  std::vector<std::size_t> found(static_cast<std::size_t>(nodes_[node].arity));
  std::size_t child = node;
  for (std::size_t i = found.size(); i-- > 0;) {
    found[i] = --child;
    child -= static_cast<std::size_t>(nodes_[child].nodes) - 1;
  }
  return found;
}

std::vector<std::size_t> tree_spec::parents() const {
  std::vector<std::size_t> parent(nodes_.size());
  std::vector<std::pair<std::size_t, std::int32_t>> open;  // a container, and the number of children still to come
  for (std::size_t node = nodes_.size(); node-- > 0;) {
    parent[node] = open.empty() ? node : open.back().first;
    if (!open.empty() && --open.back().second == 0) open.pop_back();
    if (nodes_[node].arity > 0) open.emplace_back(node, nodes_[node].arity);
  }
  return parent;
}

path tree_spec::path_of(std::size_t node) const {
  path where;
  for (std::size_t at = nodes_.size() - 1; at != node;) {
    std::size_t child = at - 1;  // the last child; step back to the one that contains the node
    for (std::size_t begin; (begin = child + 1 - static_cast<std::size_t>(nodes_[child].nodes)) > node;)
      child = begin - 1;
    where.push_back(keys_[child]);
    at = child;
  }
  return where;
}

std::vector<path> tree_spec::node_paths() const {
  const std::vector<std::size_t> parent = parents();
  std::vector<path> paths(nodes_.size());
  for (std::size_t node = nodes_.size(); node-- > 0;) {  // parents before children
    if (parent[node] == node) continue;
    paths[node] = paths[parent[node]];
    paths[node].push_back(keys_[node]);
  }
  return paths;
}

std::vector<path> tree_spec::leaf_paths() const {
  std::vector<path> paths(leaves());
  std::vector<std::pair<const path_key*, std::int32_t>> open;  // a container's key, and its number of children to come
  std::size_t leaf = paths.size();
  for (std::size_t node = nodes_.size(); node-- > 0;) {
    while (!open.empty() && open.back().second == 0) open.pop_back();
    if (!open.empty()) --open.back().second;
    if (nodes_[node].kind != node_kind::leaf) {
      open.emplace_back(&keys_[node], nodes_[node].arity);
      continue;
    }
    path& where = paths[--leaf];
    if (open.empty()) continue;  // the root
    where.reserve(open.size());
    for (std::size_t i = 1; i < open.size(); ++i) where.push_back(*open[i].first);
    where.push_back(keys_[node]);
  }
  return paths;
}

void tree_builder::complain(error why) {
  if (!problem_) problem_ = std::move(why);
}

void tree_builder::complain(const char* what) {
  complain(fail(errc::invalid_argument, std::string("a tree was built wrongly: ") + what));
}

void tree_builder::reserve(std::size_t nodes) {
  made_.nodes_.reserve(nodes);
  made_.keys_.reserve(nodes);
}

void tree_builder::key(path_key k) {
  if (open_.empty() || open_.back().kind != node_kind::mapping || next_key_)
    complain("a key was given where no child of a mapping follows");
  next_key_ = std::move(k);
}

path_key tree_builder::take_key(path_key* given) {
  if (open_.empty()) {
    if (++roots_ > 1) complain("there is more than one root");
    return 0;
  }
  open_node& parent = open_.back();
  const std::int64_t position = parent.arity;
  if (parent.arity == most_children)
    complain(fail(errc::overflow, "a container has too many children").with_values("at most 2147483647", "more"));
  else
    ++parent.arity;
  if (parent.kind != node_kind::mapping) return position;
  if (given != nullptr) return std::move(*given);
  if (!next_key_) {
    complain("a child of a mapping has no key");
    return position;
  }
  path_key taken = *std::move(next_key_);
  next_key_.reset();
  return taken;
}

void tree_builder::close(tree_node node, path_key key) {
  if (!open_.empty()) open_.back().leaves += node.leaves;
  made_.nodes_.push_back(node);
  made_.keys_.push_back(std::move(key));
}

void tree_builder::any_leaf(path_key* key) {
  close({}, take_key(key));
}

void tree_builder::leaf() {
  any_leaf(nullptr);
}

void tree_builder::begin_with(node_kind container, path_key* key) {
  if (container == node_kind::leaf) complain("a leaf is not a container");
  path_key own = take_key(key);
  open_.push_back({container, 0, static_cast<std::int64_t>(made_.nodes_.size()), 0, std::move(own)});
}

void tree_builder::begin(node_kind container) {
  begin_with(container, nullptr);
}

void tree_builder::begin(node_kind container, path_key k) {
  begin_with(container, &k);
}

// Ascending keys are distinct. Otherwise, few keys are compared pairwise, and many are sorted.
void tree_builder::check_keys(const open_node& mapping) {
  const auto count = static_cast<std::size_t>(mapping.arity);
  constexpr std::size_t few = 16;
  std::array<const path_key*, few> few_keys;
  std::vector<const path_key*> many_keys(count > few ? count : 0);
  const std::span keys = count > few ? std::span(many_keys) : std::span(few_keys).first(count);
  std::size_t child = made_.nodes_.size();
  for (std::size_t i = count; i-- > 0;) {
    keys[i] = &made_.keys_[--child];
    child -= static_cast<std::size_t>(made_.nodes_[child].nodes) - 1;
  }
  const path_key* twice = nullptr;
  if (count <= few) {
    for (std::size_t i = 1; i < count && !twice; ++i)
      for (std::size_t j = 0; j < i && !twice; ++j)
        if (*keys[i] == *keys[j]) twice = keys[i];
  } else {
    const auto less = [](auto a, auto b) { return *a < *b; };
    if (!std::is_sorted(keys.begin(), keys.end(), less)) std::sort(keys.begin(), keys.end(), less);
    const auto same = std::adjacent_find(keys.begin(), keys.end(), [](auto a, auto b) { return *a == *b; });
    if (same != keys.end()) twice = *same;
  }
  if (twice == nullptr) return;
  path where;
  for (std::size_t i = 1; i < open_.size(); ++i) where.push_back(open_[i].own_key);
  where.push_back(*twice);
  complain(fail(errc::duplicate_key, "a mapping has a key twice").with_key(to_string(where)));
}

void tree_builder::end() {
  if (open_.empty()) return complain("end was called without begin");
  if (next_key_) complain("a key has no child");
  if (open_.back().kind == node_kind::mapping && open_.back().arity > 1) check_keys(open_.back());
  open_node done = std::move(open_.back());
  open_.pop_back();
  close({done.kind, done.arity, static_cast<std::int64_t>(made_.nodes_.size()) - done.first_node + 1, done.leaves},
        std::move(done.own_key));
}

void tree_builder::end(node_kind container) {
  if (!open_.empty() && container != node_kind::leaf) open_.back().kind = container;
  end();
}

result<tree_spec> tree_builder::finish() {
  if (!open_.empty()) complain("a container was not ended");
  if (roots_ == 0) complain("there is no root");
  tree_builder done = std::exchange(*this, {});
  if (done.problem_) return *std::move(done.problem_);
  return std::move(done.made_);
}

}  // namespace shardmesh
