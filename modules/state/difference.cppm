// SPDX-License-Identifier: Apache-2.0
// difference: finds the differences between two leaves, and between two state dicts. Their kinds are in tree;
// differences of checkpoints are in checkpoint.
export module shardmesh.state:difference;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :node;
import :value;

export namespace shardmesh {

/// A path at which two state dicts differ.
struct path_difference : difference {
  path where;
  friend bool operator==(const path_difference&, const path_difference&) = default;
};

/// "layers[0].w: dtype float32 against bfloat16".
std::string to_string(const path_difference& found);

/// The result of `diff`.
struct state_diff_report {
  std::vector<path_difference> differences;  // the first ones, in the order of the left dict
  std::size_t total = 0;                     // the number of all differences
  bool equal() const { return total == 0; }
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

std::optional<difference> difference_of(const compared_tensor& a, const compared_tensor& b, bool values);
std::optional<difference> difference_of(const sharded_tensor_metadata& a, const rank_group& a_group,
                                        const sharded_tensor_metadata& b, const rank_group& b_group);
std::optional<difference> difference_of(const layout& a, const layout& b);
std::optional<difference> difference_of(const opaque_object& a, const opaque_object& b);
std::optional<difference> difference_of_text(const std::string& a, const std::string& b);
std::optional<difference> difference_of_bytes(std::span<const std::byte> a, std::span<const std::byte> b);
std::optional<difference> difference_of_doubles(double a, double b);
difference objects_differ(std::string_view a, std::string_view b);
difference kinds_differ(std::string_view a, std::string_view b);
difference only_on(difference_kind side, std::string_view what);
difference ranks_differ(std::string_view what, std::int64_t a, std::int64_t b);
difference in_shard(difference found, const shard_metadata& shard);

/// Compares local shards and the tensors nested in them, at most `max_shard_nesting` deep. A list of open pairs
/// replaces recursion.
template <local_tensor T>
std::optional<difference> difference_of(const sharded_tensor<T>& a, const sharded_tensor<T>& b, bool values) {
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
std::optional<difference> difference_of(const dtensor<T>& a, const dtensor<T>& b, bool values) {
  if (auto found = difference_of(a.layout(), b.layout())) return found;
  if (a.rank() != b.rank()) return ranks_differ("rank", a.rank(), b.rank());
  if (!a.has_local()) return std::nullopt;  // the same rank of equal meshes, so b has no local tensor either
  return difference_of(compared(a.local()), compared(b.local()), values);
}

/// Returns the first difference between two leaves, or nothing if they are equal, as in `equal`. It looks for kind,
/// dtype, shape, layout, placement, properties, and values or object, in this order. The text names the left side, then
/// the right: "dtype float32 against bfloat16". Elements that cannot be copied to the host are `unreadable`.
/// Cost: O(shards + elements).
template <local_tensor T>
std::optional<difference> difference_of(const state_value<T>& a, const state_value<T>& b,
                                        const state_compare_options& options = {}) {
  if (a.kind() != b.kind()) return kinds_differ(name(a.kind()), name(b.kind()));
  switch (a.kind()) {
    case value_kind::none:
      break;
    case value_kind::boolean:
      if (*a.boolean() == *b.boolean()) break;
      return objects_differ(*a.boolean() ? "true" : "false", *b.boolean() ? "true" : "false");
    case value_kind::integer:
      if (*a.integer() == *b.integer()) break;
      return objects_differ(std::to_string(*a.integer()), std::to_string(*b.integer()));
    case value_kind::floating:
      return difference_of_doubles(*a.floating(), *b.floating());
    case value_kind::text:
      return difference_of_text(*a.text(), *b.text());
    case value_kind::bytes:
      return difference_of_bytes(*a.bytes(), *b.bytes());
    case value_kind::object:
      return difference_of(*a.object(), *b.object());
    case value_kind::tensor:
      return difference_of(compared(*a.tensor()), compared(*b.tensor()), options.tensor_values);
    case value_kind::sharded_tensor:
      return difference_of(*a.sharded_tensor(), *b.sharded_tensor(), options.tensor_values);
    case value_kind::dtensor:
      return difference_of(*a.dtensor(), *b.dtensor(), options.tensor_values);
  }
  return std::nullopt;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns whether two values have the same kind, and `diff` finds no difference.
template <local_tensor T>
bool operator==(const state_value<T>& a, const state_value<T>& b) {
  return !detail::difference_of(a, b);
}

template <local_tensor T>
bool equal(const state_dict<T>& a, const state_dict<T>& b, const state_compare_options& options) {
  if (a.spec() == b.spec()) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (detail::difference_of(a.leaves()[i], b.leaves()[i], options)) return false;
    return true;
  }
  if (a.size() != b.size() || a.spec().nodes().size() != b.spec().nodes().size()) return false;
  return visit_together(a, b, [&](const path&, dict_node<const T>* left, dict_node<const T>* right) {
    if (!left || !right || left->kind() != right->kind()) return visit_step::stop;
    const bool differs = left->is_leaf() && detail::difference_of(left->value(), right->value(), options);
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
state_diff_report diff(const state_dict<T>& a, const state_dict<T>& b, const state_diff_options& options = {}) {
  state_diff_report found;
  const auto add = [&](const path& where, difference what) {
    if (found.total++ < options.max_differences) found.differences.push_back({std::move(what), where});
  };
  const auto described = [](const dict_node<const T>& node) -> std::string_view {
    if (node.is_leaf()) return name(node.value().kind());
    if (node.kind() == node_kind::mapping) return "mapping";
    return node.kind() == node_kind::sequence ? "sequence" : "tuple";
  };
  visit_together(a, b, [&](const path& where, dict_node<const T>* left, dict_node<const T>* right) {
    if (!left)
      add(where, detail::only_on(difference_kind::only_right, described(*right)));
    else if (!right)
      add(where, detail::only_on(difference_kind::only_left, described(*left)));
    else if (left->kind() != right->kind())
      add(where, detail::kinds_differ(described(*left), described(*right)));
    else if (left->is_leaf()) {
      if (auto differs = detail::difference_of(left->value(), right->value(), {options.tensor_values}))
        add(where, *std::move(differs));
    } else {
      return visit_step::into;
    }
    return visit_step::over;
  });
  return found;
}

}  // namespace shardmesh
