// SPDX-License-Identifier: Apache-2.0
// c10::IValue, LibTorch's value of any type, as a tree. Values that torch::pickle_load reads or TorchScript returns can
// be walked, transformed, and converted to a state dict and back. The importing file includes ATen/core/ivalue.h.
module;
#include <shardmesh/torch_forward.hpp>
export module shardmesh.torch:ivalue;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.state;

namespace shardmesh::detail {

node_kind kind_of_ivalue(const c10::IValue& value);
void visit_ivalue(const c10::IValue& value, function_ref<bool(path_key, const c10::IValue&)> visit);
std::string type_of_ivalue(const c10::IValue& value);

}  // namespace shardmesh::detail

/// Dicts with strings and integers as keys, lists, and tuples are containers (a named tuple loses its names);
/// everything else is a leaf. A handle: copies refer to the same value.
export template <>
struct shardmesh::node_adapter<c10::IValue> {
  static constexpr bool is_handle = true;
  static node_kind kind(const c10::IValue& value) { return detail::kind_of_ivalue(value); }
  template <class N, class Visit>
  static void children(N& value, Visit&& visit) {
    detail::visit_ivalue(value, [&](path_key key, const c10::IValue& child) -> bool {
      return visit(std::move(key), std::remove_const_t<N>(static_cast<const N&>(child)));
    });
  }
  /// Makes lists and dicts with elements of any type. The keys of a dict are either all strings or all integers,
  /// because TorchScript has no mixed dicts. \errors errc::invalid_argument for mixed keys
  static result<c10::IValue> make(node_kind container, std::vector<std::pair<path_key, c10::IValue>> children);
};

export namespace shardmesh {

/// Converts an IValue to a state dict of the same shape, whose tensors share elements with it. Tensors, None, bool,
/// int, double, and strings are kept.
/// \errors errc::unsupported naming the type of any other leaf (an object, a device, a complex number)
/// Cost: O(nodes).
template <local_tensor T, std::same_as<c10::IValue> Value>
result<state_dict<T>> state_of(const Value& value) {
  const auto read = [](const Value& leaf) -> result<state_value<T>> {
    if (leaf.isTensor()) return state_value<T>(leaf.toTensor());
    if (leaf.isNone()) return state_value<T>();
    if (leaf.isBool()) return state_value<T>(leaf.toBool());
    if (leaf.isInt()) return state_value<T>(leaf.toInt());
    if (leaf.isDouble()) return state_value<T>(leaf.toDouble());
    if (leaf.isString()) return state_value<T>(std::string(leaf.toStringView()));
    return fail(errc::unsupported, "a state dict cannot hold this value").with_values("", detail::type_of_ivalue(leaf));
  };
  return state_dict_from(value, read);
}

/// Converts a state dict to an IValue. \errors errc::unsupported for sharded tensors, dtensors, bytes and opaque
/// objects; errc::invalid_argument for a mapping of names and indices
template <class Value, local_tensor T>
  requires std::same_as<Value, c10::IValue>
result<Value> ivalue_of(state_dict<T> state) {
  const auto write = [](state_value<T>& leaf) -> result<Value> {
    if (leaf.is_none()) return Value();
    if (const auto* held = leaf.tensor()) return Value(*held);
    if (const auto* held = leaf.boolean()) return Value(*held);
    if (const auto* held = leaf.integer()) return Value(*held);
    if (const auto* held = leaf.floating()) return Value(*held);
    if (const auto* held = leaf.text()) return Value(*held);
    return fail(errc::unsupported, "LibTorch cannot hold this value").with_values("", std::string(name(leaf.kind())));
  };
  return tree_from<Value>(std::move(state), write);
}

}  // namespace shardmesh
