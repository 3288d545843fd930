// SPDX-License-Identifier: Apache-2.0
// transform: a new tree from an old one, with nodes replaced and dropped; the new node type may differ.
export module shardmesh.tree:transform;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;
import :state_node;
import :walk;

export namespace shardmesh {

/// The fate of a node: kept, replaced as a whole, or dropped. A kept container is rebuilt from its transformed
/// children; a kept leaf is converted to To.
template <buildable_state_node To>
class transformed {
 public:
  using node = To;
  static transformed keep() { return transformed(what::keep); }
  static transformed drop() { return transformed(what::drop); }
  static transformed replace(To with) {
    transformed made(what::replace);
    made.with_.emplace(std::move(with));
    return made;
  }

  bool is_kept() const { return what_ == what::keep; }
  bool is_dropped() const { return what_ == what::drop; }
  /// Precondition: neither kept nor dropped.
  To take() && { return *std::move(with_); }

 private:
  enum class what : unsigned char { keep, drop, replace };
  explicit transformed(what w) : what_(w) {}
  what what_;
  std::optional<To> with_;
};

}  // namespace shardmesh

namespace shardmesh::detail {

template <class T>
struct is_transformed : std::false_type {};
template <class To>
struct is_transformed<transformed<To>> : std::true_type {};

/// The node type that the transformer F makes from a From; void when F is not a transformer (its constraint then
/// reports it).
template <class F, class From>
struct made_by {
  using type = void;
};
template <class F, class From>
  requires is_transformed<std::invoke_result_t<F&, const path&, const From&>>::value
struct made_by<F, From> {
  using type = typename std::invoke_result_t<F&, const path&, const From&>::node;
};

template <class Node>
using built_children = std::vector<std::pair<path_key, Node>>;

/// Calls the adapter's `make()`, whether or not it can fail; an error without a key gets the path.
template <buildable_state_node Node, class Where>
result<Node> make_node(node_kind kind, built_children<Node> children, const Where& where) {
  result<Node> made = node_adapter<Node>::make(kind, std::move(children));
  if (made || !made.error().key.empty()) return made;
  return std::move(made).error().with_key(where());
}

/// Removes the last `count` of the built nodes and returns them as the children of a container.
template <class Node>
built_children<Node> take_last(built_children<Node>& built, std::size_t count) {
  const auto first = built.end() - static_cast<std::ptrdiff_t>(count);
  built_children<Node> children(std::make_move_iterator(first), std::make_move_iterator(built.end()));
  built.erase(first, built.end());
  return children;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// `f(const path&, const From&) -> transformed<To>`.
template <class F, class From>
concept node_transformer = std::invocable<F&, const path&, const From&> &&
                           detail::is_transformed<std::invoke_result_t<F&, const path&, const From&>>::value;

/// Builds a new tree of the type `To` that f returns. f is called as in `visit`: parents before children, but not below
/// nodes that it replaces or drops. Elements of a sequence or tuple move up after a dropped one; f receives the paths
/// of the old tree.
/// \param f  `f(const path&, const From&) -> transformed<To>`
/// \errors errc::invalid_argument naming the path when the root is dropped, or when a kept leaf cannot become a To (To
///         is not constructible from From); and the errors of To's `make`
/// Cost: O(nodes). No recursion (but To's destructor may recurse in a deep tree).
template <state_node From, node_transformer<From> F>
  requires state_node<const From>
result<typename detail::made_by<F, From>::type> transform(const From& root, F&& f) {
  using To = typename detail::made_by<F, From>::type;
  struct container {
    node_kind kind;
    std::size_t first;  // index of its first child in `built`
    path_key key;
  };
  path where;
  detail::open_containers<const From> open;
  std::vector<container> kept;  // aligned with the open containers
  detail::built_children<To> built;
  const auto add = [&](path_key key, To node) {
    if (!kept.empty() && kept.back().kind != node_kind::mapping)
      key = static_cast<std::int64_t>(built.size() - kept.back().first);
    built.emplace_back(std::move(key), std::move(node));
  };
  // Builds, drops, or enters the node with this key in its container.
  const auto handle = [&](const path_key& key, const From& node) -> result<void> {
    auto what = f(std::as_const(where), node);
    if (what.is_dropped()) return {};
    if (!what.is_kept()) return add(key, std::move(what).take()), result<void>{};
    const node_kind kind = detail::kind_of<const From>(node);
    if (kind != node_kind::leaf) {
      kept.push_back({kind, built.size(), key});
      open.enter(node);
      return {};
    }
    if constexpr (std::constructible_from<To, const From&>)
      return add(key, To(node)), result<void>{};
    else
      return fail(errc::invalid_argument, "the callback keeps a leaf that cannot be converted to the new type")
          .with_key(to_string(where));
  };
  if (auto done = handle(0, root); !done) return std::move(done).error();
  while (!open.empty()) {
    if (auto* child = open.next()) {
      const std::size_t depth = open.size();
      where.push_back(std::move(child->key));
      const auto done = handle(where.back(), detail::reference_to<const From>::node(child->node));
      if (!done) return done.error();
      if (open.size() == depth) where.pop_back();
      continue;
    }
    open.leave();
    container done = std::move(kept.back());
    kept.pop_back();
    auto made = detail::make_node<To>(done.kind, detail::take_last(built, built.size() - done.first),
                                      [&] { return to_string(where); });
    if (!made) return std::move(made).error();
    add(std::move(done.key), *std::move(made));
    if (!open.empty()) where.pop_back();
  }
  if (built.empty()) return fail(errc::invalid_argument, "the callback drops the root of the tree");
  return std::move(built.front().second);
}

}  // namespace shardmesh
