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

}  // namespace shardmesh::detail
