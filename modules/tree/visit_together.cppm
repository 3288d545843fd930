// SPDX-License-Identifier: Apache-2.0
// visit_together: visits two trees at once and matches children by key. One tree is visited by `visit`.
export module shardmesh.tree:visit_together;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;
import :state_node;
import :visit;
import :walk;

namespace shardmesh::detail {

template <state_node N>
N* address(node_pointer<N>& node) {
  return node ? &*node : nullptr;
}

template <state_node N>
std::vector<keyed_node<N>> children_of(N& node) {
  std::vector<keyed_node<N>> found;
  adapter_of<N>::children(node, [&](path_key key, typename reference_to<N>::child child) {
    found.push_back({std::move(key), reference_to<N>::of(child)});
    return true;
  });
  return found;
}

/// Finds the child of b with the key of each child of a. Optimised for children in the same order, which need no
/// look-up.
template <state_node B>
class key_matcher {
 public:
  explicit key_matcher(std::vector<keyed_node<B>>& children) : children_(children), used_(children.size()) {}

  node_pointer<B> take(const path_key& key) {
    if (next_ < children_.size() && !used_[next_] && children_[next_].key == key) return use(next_++);
    if (sorted_.empty()) sort();
    const auto less = [&](std::size_t i, const path_key& k) { return children_[i].key < k; };
    auto found = std::lower_bound(sorted_.begin(), sorted_.end(), key, less);
    while (found != sorted_.end() && children_[*found].key == key && used_[*found]) ++found;
    if (found == sorted_.end() || children_[*found].key != key) return {};
    next_ = *found + 1;
    return use(*found);
  }
  bool is_used(std::size_t child) const { return used_[child]; }

 private:
  node_pointer<B> use(std::size_t child) {
    used_[child] = true;
    return children_[child].node;
  }
  void sort() {
    sorted_.resize(children_.size());
    std::iota(sorted_.begin(), sorted_.end(), std::size_t{0});
    std::sort(sorted_.begin(), sorted_.end(), [&](std::size_t i, std::size_t j) {
      const auto order = children_[i].key <=> children_[j].key;
      return order < 0 || (order == 0 && i < j);
    });
  }
  std::vector<keyed_node<B>>& children_;
  std::vector<bool> used_;
  std::size_t next_ = 0;
  std::vector<std::size_t> sorted_;  // filled when the orders first differ
};

template <state_node A, state_node B>
struct keyed_pair {
  path_key key;
  node_pointer<A> a{};
  node_pointer<B> b{};
};

/// Appends the children of both nodes: a's in a's order, then those that only b has.
template <state_node A, state_node B>
void append_pairs(A& a, B& b, std::vector<keyed_pair<A, B>>& pairs) {
  auto of_a = children_of<A>(a);
  auto of_b = children_of<B>(b);
  key_matcher<B> matcher(of_b);
  for (keyed_node<A>& child : of_a) {
    node_pointer<B> other = matcher.take(child.key);
    pairs.push_back({std::move(child.key), std::move(child.node), std::move(other)});
  }
  for (std::size_t i = 0; i < of_b.size(); ++i)
    if (!matcher.is_used(i)) pairs.push_back({std::move(of_b[i].key), {}, std::move(of_b[i].node)});
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// `f(const path&, A*, B*) -> visit_step`.
template <class F, class A, class B>
concept pair_visitor =
    std::invocable<F&, const path&, A*, B*> && std::same_as<std::invoke_result_t<F&, const path&, A*, B*>, visit_step>;

/// Calls f for every place in either tree, parents before children. a's children come in a's order, then those that
/// only b has. The trees may have different node types.
/// \param f  `f(const path&, A* a, B* b) -> visit_step`. One of a and b is null where that tree has no such key. `into`
///           descends only where both are containers of the same kind; elsewhere f receives one side's whole subtree. f
///           may assign to the nodes, as in `visit`. (Pointers to handles are valid only during the call.)
/// \returns false when f stopped the visit
/// Cost: O(nodes) when the children of both are in the same order, else O(n log n) for n children. Entering a pair of
/// containers costs O(their children), even when f then stops. No recursion.
template <tree_root RootA, tree_root RootB, pair_visitor<root_node<RootA>, root_node<RootB>> F>
bool visit_together(RootA&& a, RootB&& b, F&& f) {
  using A = root_node<RootA>;
  using B = root_node<RootB>;
  struct container {
    std::size_t first, next;  // in pairs
  };
  path where;
  std::vector<detail::keyed_pair<A, B>> pairs;
  std::vector<container> open;
  const auto enter = [&](A* left, B* right) {
    const visit_step step = f(std::as_const(where), left, right);
    if (step == visit_step::into && left && right) {
      const node_kind kind = detail::kind_of<A>(*left);
      if (kind != node_kind::leaf && kind == detail::kind_of<B>(*right)) {
        open.push_back({pairs.size(), pairs.size()});
        detail::append_pairs<A, B>(*left, *right, pairs);
      }
    }
    return step != visit_step::stop;
  };
  if (!enter(&a, &b)) return false;
  while (!open.empty()) {
    container& innermost = open.back();
    if (innermost.next == pairs.size()) {
      pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(innermost.first), pairs.end());
      open.pop_back();
      if (!open.empty()) where.pop_back();
      continue;
    }
    auto& pair = pairs[innermost.next++];
    const std::size_t depth = open.size();
    where.push_back(std::move(pair.key));
    if (!enter(detail::address<A>(pair.a), detail::address<B>(pair.b))) return false;
    if (open.size() == depth) where.pop_back();
  }
  return true;
}

}  // namespace shardmesh
