// SPDX-License-Identifier: Apache-2.0
// difference: finds the differences between two leaves, and between two state dicts. Differences of checkpoints are in
// checkpoint.
export module shardmesh.state:difference;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :node;
import :value;

export namespace shardmesh {

/// The kind of the first difference at a path. Comparisons are made in this order.
enum class state_difference_kind : std::uint8_t {
  missing_left,   // only the right dict has the path
  missing_right,  // only the left dict has the path
  kind,           // a leaf and a container, different containers, or leaves of different kinds
  dtype,
  shape,
  layout,      // boxes, or the placements and mesh of a dtensor
  placement,   // devices, ranks, and groups
  properties,  // requires_grad, memory format ...
  value        // of plain values, or elements of tensors
};

/// "missing left", "missing right", "kind", "dtype" ...
std::string_view name(state_difference_kind kind);

/// The difference between two leaves. The text names the left side, then the right: "float32 against bfloat16".
struct value_difference {
  state_difference_kind kind = state_difference_kind::value;
  std::string text;
  friend bool operator==(const value_difference&, const value_difference&) = default;
};

/// A path at which two state dicts differ.
struct state_difference {
  path where;
  state_difference_kind kind = state_difference_kind::value;
  std::string text;
  friend bool operator==(const state_difference&, const state_difference&) = default;
};

/// "layers[0].w: dtype: float32 against bfloat16".
std::string to_string(const state_difference& difference);

/// The result of `diff`.
struct state_diff {
  std::vector<state_difference> differences;  // the first ones, in the order of the left dict
  std::size_t total = 0;                      // the number of all differences
  bool same() const { return total == 0; }
};

}  // namespace shardmesh

namespace shardmesh::detail {

// The data of one tensor that a comparison needs.
struct compared_tensor {
  const_tensor_view view;
  tensor_properties properties;
};

template <local_tensor T>
compared_tensor compared(const T& tensor) {
  return {view_of(tensor), properties_of(tensor)};
}

std::optional<value_difference> difference_of(const compared_tensor& a, const compared_tensor& b, bool values);
std::optional<value_difference> difference_of(const sharded_tensor_metadata& a, const rank_group& a_group,
                                              const sharded_tensor_metadata& b, const rank_group& b_group);
std::optional<value_difference> difference_of(const layout& a, const layout& b);
std::optional<value_difference> difference_of(const opaque_object& a, const opaque_object& b);
std::optional<value_difference> difference_of_text(const std::string& a, const std::string& b);
std::optional<value_difference> difference_of_bytes(std::span<const std::byte> a, std::span<const std::byte> b);
std::optional<value_difference> difference_of_doubles(double a, double b);
value_difference values_differ(std::string_view a, std::string_view b);
value_difference kinds_differ(std::string_view a, std::string_view b);
value_difference ranks_differ(std::string_view what, std::int64_t a, std::int64_t b);
value_difference in_shard(value_difference difference, const shard_metadata& shard);

/// Compares local shards and the tensors nested in them, at most `max_shard_nesting` deep. A list of open pairs
/// replaces recursion.
template <local_tensor T>
std::optional<value_difference> difference_of(const sharded_tensor<T>& a, const sharded_tensor<T>& b, bool values) {
  std::vector<std::pair<const sharded_tensor<T>*, const sharded_tensor<T>*>> open{{&a, &b}};
  while (!open.empty()) {
    const auto [left, right] = open.back();
    open.pop_back();
    if (auto found = difference_of(left->metadata(), left->group(), right->metadata(), right->group())) return found;
    if (left->rank() != right->rank()) return ranks_differ("rank in the group", left->rank(), right->rank());
    for (std::size_t i = 0; i < left->local_shards().size(); ++i) {
      const shard<T>& one = left->local_shards()[i];
      const shard<T>& other = right->local_shards()[i];
      if (one.is_nested() != other.is_nested())
        return in_shard(kinds_differ(one.is_nested() ? "a sharded tensor" : "a tensor",
                                     other.is_nested() ? "a sharded tensor" : "a tensor"),
                        one.metadata());
      if (one.is_nested())
        open.emplace_back(&one.nested(), &other.nested());
      else if (auto found = difference_of(compared(one.tensor()), compared(other.tensor()), values))
        return in_shard(*std::move(found), one.metadata());
    }
  }
  return std::nullopt;
}

template <local_tensor T>
std::optional<value_difference> difference_of(const dtensor<T>& a, const dtensor<T>& b, bool values) {
  if (auto found = difference_of(a.layout(), b.layout())) return found;
  if (a.rank() != b.rank()) return ranks_differ("rank", a.rank(), b.rank());
  if (!a.has_local()) return std::nullopt;  // the same rank of equal meshes, so b has no local tensor either
  return difference_of(compared(a.local()), compared(b.local()), values);
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns the difference between two leaves; nothing if they are equal, as in `equal`.
/// Cost: O(shards + elements).
template <local_tensor T>
std::optional<value_difference> difference_of(const state_value<T>& a, const state_value<T>& b,
                                              const state_compare_options& options = {}) {
  if (a.kind() != b.kind()) return detail::kinds_differ(name(a.kind()), name(b.kind()));
  switch (a.kind()) {
    case value_kind::none:
      break;
    case value_kind::boolean:
      if (*a.boolean() == *b.boolean()) break;
      return detail::values_differ(*a.boolean() ? "true" : "false", *b.boolean() ? "true" : "false");
    case value_kind::integer:
      if (*a.integer() == *b.integer()) break;
      return detail::values_differ(std::to_string(*a.integer()), std::to_string(*b.integer()));
    case value_kind::floating:
      return detail::difference_of_doubles(*a.floating(), *b.floating());
    case value_kind::text:
      return detail::difference_of_text(*a.text(), *b.text());
    case value_kind::bytes:
      return detail::difference_of_bytes(*a.bytes(), *b.bytes());
    case value_kind::object:
      return detail::difference_of(*a.object(), *b.object());
    case value_kind::tensor:
      return detail::difference_of(detail::compared(*a.tensor()), detail::compared(*b.tensor()), options.tensor_values);
    case value_kind::sharded_tensor:
      return detail::difference_of(*a.sharded_tensor(), *b.sharded_tensor(), options.tensor_values);
    case value_kind::dtensor:
      return detail::difference_of(*a.dtensor(), *b.dtensor(), options.tensor_values);
  }
  return std::nullopt;
}

/// Returns whether two values have the same kind, and `difference_of` finds no difference.
template <local_tensor T>
bool operator==(const state_value<T>& a, const state_value<T>& b) {
  return !difference_of(a, b);
}

template <local_tensor T>
bool equal(const state_dict<T>& a, const state_dict<T>& b, const state_compare_options& options) {
  if (a.spec() == b.spec()) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (difference_of(a.leaves()[i], b.leaves()[i], options)) return false;
    return true;
  }
  if (a.size() != b.size() || a.spec().nodes().size() != b.spec().nodes().size()) return false;
  return visit_together(a, b, [&](const path&, dict_node<const T>* left, dict_node<const T>* right) {
    if (!left || !right || left->kind() != right->kind()) return visit_step::stop;
    const bool differs = left->is_leaf() && difference_of(left->value(), right->value(), options);
    return differs ? visit_step::stop : visit_step::into;
  });
}

/// The options of `diff`. By default it compares everything, including elements.
struct state_diff_options {
  bool tensor_values = true;          // compare elements, not only metadata
  std::size_t max_differences = 100;  // the most to list; further ones are only counted
};

/// Finds every path at which two state dicts differ. A missing container counts once. The order of a mapping's keys
/// does not count. The result is empty exactly when `equal` returns true.
/// Cost: O(nodes + elements); O(n log n) for n children in different orders.
template <local_tensor T>
state_diff diff(const state_dict<T>& a, const state_dict<T>& b, const state_diff_options& options = {}) {
  state_diff found;
  const auto add = [&](const path& where, value_difference what) {
    if (found.total++ < options.max_differences) found.differences.push_back({where, what.kind, std::move(what.text)});
  };
  const auto described = [](const dict_node<const T>& node) -> std::string_view {
    if (node.is_leaf()) return name(node.value().kind());
    if (node.kind() == node_kind::mapping) return "mapping";
    return node.kind() == node_kind::sequence ? "sequence" : "tuple";
  };
  visit_together(a, b, [&](const path& where, dict_node<const T>* left, dict_node<const T>* right) {
    if (!left)
      add(where, {state_difference_kind::missing_left, std::string(described(*right))});
    else if (!right)
      add(where, {state_difference_kind::missing_right, std::string(described(*left))});
    else if (left->kind() != right->kind())
      add(where, detail::kinds_differ(described(*left), described(*right)));
    else if (left->is_leaf()) {
      if (auto differs = difference_of(left->value(), right->value(), {options.tensor_values}))
        add(where, *std::move(differs));
    } else {
      return visit_step::into;
    }
    return visit_step::over;
  });
  return found;
}

}  // namespace shardmesh
