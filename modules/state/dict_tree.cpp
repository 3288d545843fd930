// SPDX-License-Identifier: Apache-2.0
module;
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <position_table.hpp>
#include <shardmesh/try.hpp>
module shardmesh.state;

namespace shardmesh::detail {
namespace {

std::uint64_t mixed(std::uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93ULL;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93ULL;
  return hash ^ (hash >> 32);
}

// The hash of a path, computed from its parent's.
std::uint64_t child_hash(std::uint64_t parent, const path_key& key) {
  const std::uint64_t own = key.is_index() ? mixed(static_cast<std::uint64_t>(key.index()) + 0x9e3779b97f4a7c15ULL)
                                           : std::hash<std::string_view>{}(key.name());
  return mixed(parent * 0x9e3779b97f4a7c15ULL + own + 1);
}

std::size_t first_of(const tree_spec& spec, std::size_t node) {
  return node + 1 - static_cast<std::size_t>(spec.nodes()[node].nodes);
}

bool is_numbered(node_kind kind) {
  return kind == node_kind::sequence || kind == node_kind::tuple;
}

// The first `keys` keys of a path as text.
std::string spelled(const path& where, std::size_t keys) {
  path begin;
  for (std::size_t i = 0; i < keys; ++i) begin.push_back(where[i]);
  return to_string(begin);
}

error too_far(const path& where, std::size_t depth) {
  return fail(errc::out_of_bounds, "an index is too far beyond the end of its sequence")
      .with_key(spelled(where, depth + 1))
      .with_values("at most " + std::to_string(max_made_up_leaves) + " places in between",
                   std::to_string(where[depth].index()));
}

// Makes nested containers for the keys from `first` on, with one leaf at the end, and empty leaves before it up to each
// index. Makes a leaf if there are no more keys.
result<tree_spec> chain(const path& where, std::size_t first, std::int64_t made_up) {
  tree_builder builder;
  for (std::size_t i = first; i < where.size(); ++i) {
    const path_key& key = where[i];
    const path_key own = i == first ? path_key(0) : where[i - 1];
    if (!key.is_index()) {
      builder.begin(node_kind::mapping, own);
      continue;
    }
    if (key.index() < 0)
      return fail(errc::out_of_bounds, "a negative index needs a sequence that exists").with_key(spelled(where, i + 1));
    if (key.index() > max_made_up_leaves - made_up) return too_far(where, i);
    made_up += key.index();
    builder.begin(node_kind::sequence, own);
    for (std::int64_t k = 0; k < key.index(); ++k) builder.leaf(0);
  }
  builder.leaf(first == where.size() ? path_key(0) : where[where.size() - 1]);
  for (std::size_t i = first; i < where.size(); ++i) builder.end();
  return builder.finish();
}

leaf_edit edit_with(std::size_t first, std::size_t removed, std::size_t new_leaves) {
  return {first, removed, new_leaves - 1, true};
}

}  // namespace

// Finds nodes by the hashes of their paths, and stores the depth and the first leaf of each node.
class path_index {
 public:
  explicit path_index(const tree_spec& spec);
  std::optional<std::size_t> child(const tree_spec& spec, std::size_t parent, const path_key& key) const;
  std::size_t first_leaf(std::size_t node) const { return first_leaf_[node]; }
  // Updates the index after `count` nodes were added as last descendants of a container. The container itself has moved
  // from `at` to behind them. Returns false if the index has to be rebuilt, because an update would not be cheap.
  bool follow(const tree_spec& spec, std::size_t at, std::size_t count);

 private:
  void insert(std::size_t first, std::size_t last);
  void describe(const tree_spec& spec, std::size_t root, std::size_t first_leaf);

  std::vector<std::uint64_t> hash_;
  std::vector<std::int64_t> depth_;
  std::vector<std::size_t> first_leaf_;
  position_table nodes_;
};

path_index::path_index(const tree_spec& spec)
    : hash_(spec.nodes().size()),
      depth_(spec.nodes().size()),
      first_leaf_(spec.nodes().size()),
      nodes_(spec.nodes().size()) {
  if (hash_.empty()) return;
  describe(spec, spec.nodes().size() - 1, 0);
  insert(0, hash_.size());
}

void path_index::insert(std::size_t first, std::size_t last) {
  for (std::size_t node = first; node < last; ++node)
    nodes_.insert(hash_[node], node, [&](std::size_t other) { return hash_[other]; });
}

// Fills in the entries of the nodes below `root`, parents before children. The hash and depth of `root` are set
// already.
void path_index::describe(const tree_spec& spec, std::size_t root, std::size_t first_leaf) {
  const auto nodes = spec.nodes();
  const auto keys = spec.keys();
  struct container {
    std::size_t node;
    std::int32_t children_left;
  };
  std::vector<container> open;
  std::size_t leaf = first_leaf + static_cast<std::size_t>(nodes[root].leaves);
  for (std::size_t node = root + 1, end = first_of(spec, root); node-- > end;) {
    while (!open.empty() && open.back().children_left == 0) open.pop_back();
    if (node != root) {
      --open.back().children_left;
      hash_[node] = child_hash(hash_[open.back().node], keys[node]);
      depth_[node] = depth_[open.back().node] + 1;
    }
    first_leaf_[node] = leaf - static_cast<std::size_t>(nodes[node].leaves);
    if (nodes[node].kind == node_kind::leaf)
      --leaf;
    else
      open.push_back({node, nodes[node].arity});
  }
}

std::optional<std::size_t> path_index::child(const tree_spec& spec, std::size_t parent, const path_key& key) const {
  const auto keys = spec.keys();
  const std::size_t first = first_of(spec, parent);
  const std::uint64_t hash = child_hash(hash_[parent], key);
  const std::size_t found = nodes_.find(hash, [&](std::size_t node) {
    // A node inside the parent and one level deeper is its child.
    return hash_[node] == hash && node < parent && node >= first && depth_[node] == depth_[parent] + 1 &&
           keys[node] == key;
  });
  if (found == nodes_.none) return std::nullopt;
  return found;
}

// Every node at or behind `at` has moved by `count`. If these are only the container and its ancestors, only their
// slots change. So dicts that grow at their end cost O(depth) per call.
bool path_index::follow(const tree_spec& spec, std::size_t at, std::size_t count) {
  const std::size_t before = hash_.size();
  if (static_cast<std::int64_t>(before - 1 - at) != depth_[at]) return false;
  for (std::size_t node = before; node-- > at;) nodes_.move(hash_[node], node, node + count);
  const auto make_room = [&](auto& values) {
    values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), count, {});
  };
  make_room(hash_), make_room(depth_), make_room(first_leaf_);
  // The new subtrees follow each other; each is a child of the container.
  for (std::size_t root = at + count; root-- > at; root = first_of(spec, root)) {
    hash_[root] = child_hash(hash_[at + count], spec.keys()[root]);
    depth_[root] = depth_[at + count] + 1;
  }
  std::size_t leaf = first_leaf_[at + count] + static_cast<std::size_t>(spec.nodes()[at + count].leaves);
  for (std::size_t root = at + count; root-- > at; root = first_of(spec, root)) {
    leaf -= static_cast<std::size_t>(spec.nodes()[root].leaves);
    describe(spec, root, leaf);
  }
  insert(at, at + count);
  return true;
}

dict_tree::dict_tree() {
  tree_builder builder;
  builder.begin(node_kind::mapping);
  builder.end();
  spec_ = *builder.finish();
}

dict_tree& dict_tree::operator=(dict_tree other) noexcept {
  std::swap(spec_, other.spec_);
  delete index_.exchange(other.index_.exchange(nullptr));
  return *this;
}

dict_tree::~dict_tree() {
  delete index_.load();
}

void dict_tree::forget_index() {
  delete index_.exchange(nullptr);
}

std::size_t dict_tree::first_leaf(std::size_t node) const {
  return index().first_leaf(node);
}

const path_index& dict_tree::index() const {
  path_index* known = index_.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  auto made = std::make_unique<path_index>(spec_);
  // Several threads may build an index; the first one is kept.
  if (index_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

std::optional<std::size_t> dict_tree::child(std::size_t node, const path_key& key) const {
  const tree_node& n = spec_.nodes()[node];
  if (n.kind == node_kind::leaf || (is_numbered(n.kind) && !key.is_index())) return std::nullopt;
  if (is_numbered(n.kind) && key.index() < 0) {
    if (key.index() < -std::int64_t{n.arity}) return std::nullopt;
    return index().child(spec_, node, key.index() + n.arity);
  }
  return index().child(spec_, node, key);
}

std::optional<std::size_t> dict_tree::find(const path& where) const {
  std::size_t node = spec_.nodes().size() - 1;
  for (const path_key& key : where) {
    const auto next = child(node, key);
    if (!next) return std::nullopt;
    node = *next;
  }
  return node;
}

void dict_tree::added(std::size_t at, std::size_t count) {
  path_index* const known = index_.load(std::memory_order_relaxed);
  if (known != nullptr && !known->follow(spec_, at, count)) forget_index();
}

// Adds the child where[depth] to the container at depth `depth` of the path. Precondition: it has no such child.
result<leaf_edit> dict_tree::add_child(std::size_t container, const path& where, std::size_t depth) {
  const tree_node n = spec_.nodes()[container];
  const path_key& key = where[depth];
  std::int64_t gap = 0;
  if (n.kind == node_kind::tuple)
    return fail(errc::out_of_bounds, "a tuple cannot grow").with_key(spelled(where, depth + 1));
  if (n.kind == node_kind::sequence) {
    if (!key.is_index())
      return fail(errc::invalid_argument, "a sequence's elements have indices, not names")
          .with_key(spelled(where, depth + 1));
    if (key.index() < 0)
      return fail(errc::out_of_bounds, "a negative index goes beyond the first element")
          .with_key(spelled(where, depth + 1))
          .with_values("at least " + std::to_string(-n.arity), std::to_string(key.index()));
    gap = key.index() - n.arity;
    if (gap > max_made_up_leaves) return too_far(where, depth);
  }
  SHARDMESH_TRY(const tree_spec child, chain(where, depth + 1, gap));
  const leaf_edit edit = edit_with(index().first_leaf(container) + static_cast<std::size_t>(n.leaves), 0,
                                   static_cast<std::size_t>(gap) + child.leaves());
  tree_editor editor(spec_);
  if (gap > 0) {
    SHARDMESH_TRY(editor.append_leaves(container, gap));
    added(container, static_cast<std::size_t>(gap));
    container += static_cast<std::size_t>(gap);
  }
  SHARDMESH_TRY(editor.append(container, key, child));
  added(container, child.nodes().size());
  return edit;
}

result<leaf_edit> dict_tree::set(const path& where, function_ref<bool(std::size_t leaf)> is_none) {
  std::size_t node = spec_.nodes().size() - 1, parent = node;
  if (where.empty())
    return fail(errc::invalid_argument, "the empty path is the whole state dict, which a leaf cannot replace");
  for (std::size_t depth = 0; depth < where.size(); ++depth) {
    const tree_node& n = spec_.nodes()[node];
    if (n.kind == node_kind::leaf) {
      // As in PyTorch, an empty leaf of a sequence can become a container; any other leaf is in the way.
      const std::size_t leaf = index().first_leaf(node);
      if (node == parent || spec_.nodes()[parent].kind != node_kind::sequence || !is_none(leaf))
        return fail(errc::invalid_argument, "the path leads through a leaf")
            .with_key(to_string(where))
            .with_values("a container at " + spelled(where, depth), "a leaf");
      SHARDMESH_TRY(const tree_spec with, chain(where, depth, 0));
      tree_editor(spec_).replace(node, with);
      forget_index();
      return edit_with(leaf, 1, with.leaves());
    }
    const auto next = child(node, where[depth]);
    if (!next) return add_child(node, where, depth);
    parent = std::exchange(node, *next);
  }
  const tree_node& n = spec_.nodes()[node];
  const leaf_edit edit = edit_with(index().first_leaf(node), static_cast<std::size_t>(n.leaves), 1);
  if (n.kind == node_kind::leaf) return edit;
  SHARDMESH_TRY(const tree_spec leaf, chain(where, where.size(), 0));
  tree_editor(spec_).replace(node, leaf);
  forget_index();
  return edit;
}

result<leaf_edit> dict_tree::erase(const path& where) {
  if (where.empty())
    return fail(errc::invalid_argument, "the empty path is the whole state dict, which cannot be erased");
  const auto node = find(where);
  if (!node) return fail(errc::missing_key, "there is nothing to erase").with_key(to_string(where));
  std::size_t parent = *node + 1;
  while (first_of(spec_, parent) > *node) ++parent;
  if (spec_.nodes()[parent].kind == node_kind::tuple)
    return fail(errc::invalid_argument, "an element of a tuple cannot be erased")
        .with_key(to_string(where))
        .with_hint("set the element to an empty value instead");
  const leaf_edit edit{first_leaf(*node), static_cast<std::size_t>(spec_.nodes()[*node].leaves), 0, false};
  tree_editor(spec_).erase(*node);
  forget_index();
  return edit;
}

}  // namespace shardmesh::detail
