// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.tree;

import :path_trie;

namespace shardmesh {
namespace {

error through(const path& a, const path& b) {
  return fail(errc::invalid_argument, "a path continues below the leaf of another path")
      .with_values(to_string(a), to_string(b));
}

// Puts every path into the trie. Paths mostly come in tree order, so each path starts where it parts from the previous
// one.
result<path_trie> make_trie(const path_list& paths) {
  path_trie trie;
  trie.reserve(paths.size() + paths.size() / 4 + 1);
  std::vector<node_id> trail{0};  // the nodes along the previous path
  for (std::size_t p = 0; p < paths.size(); ++p) {
    const path& now = paths[p];
    if (trie.size() + now.size() >= no_node)
      return fail(errc::overflow, "the paths have too many nodes").with_values("fewer than 4294967295", "more");
    std::size_t same = 0;
    if (p > 0) {
      const path& before = paths[p - 1];
      const std::size_t both = std::min(now.size(), before.size());
      while (same < both && now[same] == before[same]) ++same;
    }
    trail.resize(same + 1);
    for (std::size_t depth = same; depth < now.size(); ++depth) {
      if (trie[trail.back()].is_leaf) return through(paths[trie[trail.back()].some_path], now);
      trail.push_back(trie.child(trail.back(), now[depth], p));
    }
    trie_node& end = trie[trail.back()];
    if (end.is_leaf) return fail(errc::duplicate_key, "a path occurs twice").with_key(to_string(now));
    if (end.first_child != no_node) return through(now, paths[end.some_path]);
    end.is_leaf = true;
    end.some_path = static_cast<std::uint32_t>(p);
  }
  return trie;
}

// Writes the trie as a spec, with the order of its leaves.
class spec_writer {
 public:
  spec_writer(path_trie& trie, const path_list& paths, const unflatten_options& options)
      : trie_(trie), paths_(paths), max_holes_(options.max_holes), holes_left_(options.max_holes) {}

  result<unflattened> write() {
    builder_.reserve(trie_.size());
    made_.leaf_order.reserve(paths_.size());
    if (trie_[0].is_leaf) {
      builder_.leaf();
      made_.leaf_order.push_back(trie_[0].some_path);
    } else {
      SHARDMESH_TRY(enter(0));
    }
    while (!open_.empty()) {
      container& c = open_.back();
      if (c.next == c.children.size() && c.next_child == no_node) {
        builder_.end();
        open_.pop_back();
        continue;
      }
      const bool is_sequence = !c.children.empty();
      const node_id child = is_sequence ? c.children[c.next++] : c.next_child;
      if (!is_sequence) c.next_child = trie_[child].next_sibling;
      if (child == no_node) {
        builder_.leaf(0);
        made_.leaf_order.push_back(unflattened::hole);
      } else if (trie_[child].is_leaf) {
        builder_.leaf(*trie_[child].key);
        made_.leaf_order.push_back(trie_[child].some_path);
      } else {
        SHARDMESH_TRY(enter(child));
      }
    }
    SHARDMESH_TRY(made_.spec, builder_.finish());
    return std::move(made_);
  }

 private:
  struct container {
    node_id next_child = no_node;     // for a mapping
    std::vector<node_id> children{};  // for a sequence, by index; no_node: a hole
    std::size_t next = 0;
  };

  result<void> enter(node_id node) {
    const trie_node& n = trie_[node];
    SHARDMESH_TRY(auto elements, sequence_of(n));
    builder_.begin(elements.empty() ? node_kind::mapping : node_kind::sequence, n.key ? *n.key : path_key(0));
    open_.push_back({elements.empty() ? n.first_child : no_node, std::move(elements)});
    return {};
  }

  // Returns the children by index when they form a sequence, else nothing.
  result<std::vector<node_id>> sequence_of(const trie_node& n) {
    std::vector<node_id> elements;
    std::int64_t count = 0, largest = -1;
    for (node_id child = n.first_child; child != no_node; child = trie_[child].next_sibling, ++count) {
      const path_key& key = *trie_[child].key;
      if (!key.is_index() || key.index() < 0) return elements;
      largest = std::max(largest, key.index());
    }
    const std::int64_t holes = largest - count + 1;
    if (count == 0 || (holes > 0 && max_holes_ == 0)) return elements;
    if (holes > holes_left_)
      return fail(errc::invalid_argument, "the sequences would have too many positions that no path names")
          .with_key(to_string(paths_[n.some_path]))
          .with_values("at most " + std::to_string(max_holes_), "more");
    holes_left_ -= holes;
    elements.assign(static_cast<std::size_t>(largest) + 1, no_node);
    for (node_id child = n.first_child; child != no_node; child = trie_[child].next_sibling)
      elements[static_cast<std::size_t>(trie_[child].key->index())] = child;
    return elements;
  }

  path_trie& trie_;
  const path_list& paths_;
  const std::int64_t max_holes_;
  std::int64_t holes_left_;
  tree_builder builder_;
  std::vector<container> open_;
  unflattened made_;
};

// Writes paths in tree order, as flattening produces them, without a trie. Returns nothing when the paths form no tree,
// or are not in that order: a container occurs again later, or the elements of a sequence are not 0, 1, .. The trie
// then builds the tree or finds the error.
std::optional<unflattened> unflatten_in_order(const path_list& paths) {
  struct container {
    std::int64_t children = 0;
    bool counts = true;       // all keys so far are 0, 1, .. in order
    bool all_indices = true;  // all keys so far are indices, in any order
  };
  tree_builder builder;
  builder.reserve(paths.size() + paths.size() / 4 + 1);
  std::vector<container> open(1);
  builder.begin(node_kind::mapping);
  const auto add = [&](const path_key& key) {
    container& c = open.back();
    c.all_indices = c.all_indices && key.is_index() && key.index() >= 0;
    c.counts = c.counts && key.is_index() && key.index() == c.children;
    ++c.children;
  };
  const auto close_down_to = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      const container& c = open.back();
      const bool sequence = c.children > 0 && c.counts;
      if (c.children > 0 && c.all_indices && !sequence) return false;
      builder.end(sequence ? node_kind::sequence : node_kind::mapping);
    }
    return true;
  };
  for (std::size_t p = 0; p < paths.size(); ++p) {
    const path& now = paths[p];
    std::size_t same = 0;
    if (p > 0) {
      const path& before = paths[p - 1];
      const std::size_t both = std::min(now.size(), before.size());
      while (same < both && now[same] == before[same]) ++same;
      if (same == both) return std::nullopt;
    }
    if (now.empty() || !close_down_to(same + 1)) return std::nullopt;
    for (std::size_t depth = same; depth + 1 < now.size(); ++depth) {
      add(now[depth]);
      builder.begin(node_kind::mapping, now[depth]);
      open.emplace_back();
    }
    add(now.back());
    builder.leaf(now.back());
  }
  if (!close_down_to(0)) return std::nullopt;
  auto spec = builder.finish();
  if (!spec) return std::nullopt;
  unflattened made{*std::move(spec), std::vector<std::size_t>(paths.size())};
  std::iota(made.leaf_order.begin(), made.leaf_order.end(), std::size_t{0});
  return made;
}

result<unflattened> unflatten_list(const path_list& paths, const unflatten_options& options) {
  if (auto made = unflatten_in_order(paths)) return *std::move(made);
  SHARDMESH_TRY(path_trie trie, make_trie(paths));
  return spec_writer(trie, paths, options).write();
}

}  // namespace

result<unflattened> unflatten(std::span<const path> paths, const unflatten_options& options) {
  return unflatten_list({.paths = paths}, options);
}

result<unflattened> unflatten(std::span<const named_item> items, const unflatten_options& options) {
  return unflatten_list({.items = items}, options);
}

}  // namespace shardmesh
