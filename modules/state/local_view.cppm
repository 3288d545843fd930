// SPDX-License-Identifier: Apache-2.0
// local_view: the part of a state dict that this rank holds, as room tree's local_state. Saving and loading with it are
// in collective_checkpoint.
export module shardmesh.state:local_view;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :dict_tree;
import :flat;
import :value;

namespace shardmesh::detail {

// A const `Value`, `Sharded`, or `Dict` is held as read-only views.
template <class Held>
using view_through = std::conditional_t<std::is_const_v<Held>, const_tensor_view, tensor_view>;

/// Returns the part of `memory` at `inside`, or all of it. errc::unsupported if this cuts elements smaller than a byte.
template <tensor_view_type View>
result<View> part_of(const View& memory, const box& inside) {
  if (inside == box::whole(memory.sizes)) return memory;
  if (bits(memory.type) % 8 != 0)
    return fail(errc::unsupported, "a tensor of elements smaller than a byte cannot be cut");
  return subview(memory, inside);
}

/// Adds the innermost shards at their places in the whole tensor. No recursion.
template <class Sharded>
void add_shards(Sharded& outer, std::vector<basic_local_part<view_through<Sharded>>>& parts) {
  struct open_tensor {
    Sharded* tensor;
    extents origin;
  };
  std::vector<open_tensor> open{{&outer, extents::filled(outer.size().rank(), 0)}};
  while (!open.empty()) {
    const open_tensor now = open.back();
    open.pop_back();
    for (auto& one : now.tensor->local_shards()) {
      const box where = shifted({one.metadata().offsets, one.metadata().sizes}, now.origin);
      if (one.is_nested())
        open.push_back({&one.nested(), where.offsets});
      else if (!where.is_empty())
        parts.push_back({where, view_of(one.tensor())});
    }
  }
}

// Marks the tensors of a value as written, after a load has filled them.
template <local_tensor T>
void note_all_written(sharded_tensor<T>& outer) {
  for (shard<T>& one : outer.local_shards()) {
    if (one.is_nested())
      note_all_written(one.nested());  // at most `max_shard_nesting` deep
    else
      note_written(one.tensor());
  }
}
template <local_tensor T>
void note_all_written(state_value<T>& value) {
  if (T* const whole = value.tensor()) note_written(*whole);
  if (auto* const sharded = value.sharded_tensor()) note_all_written(*sharded);
  if (auto* const laid = value.dtensor(); laid && laid->has_local()) note_written(laid->local());
}

template <class Value>
result<basic_local_state_tensor<view_through<Value>>> held_of(Value& value) {
  basic_local_state_tensor<view_through<Value>> made;
  if (auto* const whole = value.tensor()) {
    if (auto plain = check_tensor(*whole); !plain) return std::move(plain).error();
    const auto view = view_of(*whole);
    made.shape = view.sizes;
    made.type = view.type;
    made.parts.push_back({box::whole(view.sizes), view});
  } else if (auto* const sharded = value.sharded_tensor()) {
    made.shape = sharded->size();
    made.type = sharded->metadata().properties.type;
    add_shards(*sharded, made.parts);
  } else if (auto* const laid = value.dtensor()) {
    made.shape = laid->size();
    if (laid->layout().reduction() != reduce_op::none)
      return fail(errc::unsupported, "a checkpoint holds values, not the terms of a Partial")
          .with_rank(laid->rank())
          .with_hint("redistribute it to Replicate or Shard first");
    if (!laid->has_local()) return made;  // outside the mesh, so even the dtype is unknown
    const auto view = view_of(laid->local());
    made.type = view.type;
    for (const placed_box& placed : laid->layout().boxes(laid->rank())) {
      auto part = part_of(view, {placed.local_offsets, placed.where.sizes});
      if (!part) return std::move(part).error().with_box(placed.where);
      made.parts.push_back({placed.where, *std::move(part)});
    }
  }
  using tensor = typename std::remove_const_t<Value>::tensor_type;
  if constexpr (!std::is_const_v<Value> && counts_writes<tensor>) made.written = [&value] { note_all_written(value); };
  return made;
}

template <local_tensor T>
plain_value plain_of(const state_value<T>& value) {
  if (const auto* v = value.boolean()) return *v;
  if (const auto* v = value.integer()) return *v;
  if (const auto* v = value.floating()) return *v;
  if (const auto* v = value.text()) return *v;
  if (const auto* v = value.bytes()) return *v;
  if (const auto* v = value.object()) return *v;
  return {};
}

}  // namespace shardmesh::detail

// Exported for room state_checkpoint.
export namespace shardmesh::detail {

template <local_tensor T>
state_value<T> value_of(plain_value value) {
  return std::visit(
      [](auto&& held) -> state_value<T> {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(held)>, std::monostate>)
          return {};
        else
          return state_value<T>(std::forward<decltype(held)>(held));
      },
      std::move(value));
}

}  // namespace shardmesh::detail

namespace shardmesh::detail {

/// Replaces the node at the object's path by a container. Precondition: the path exists; the leaves fit the form.
template <local_tensor T>
void replace(state_dict<T>& dict, const local_state_object& object) {
  std::size_t node = dict.spec().nodes().size() - 1;
  for (const path_key& key : object.where) node = *dict.child_of(node, key);
  const std::size_t first = dict.first_leaf_of(node);
  const auto before = static_cast<std::size_t>(dict.spec().nodes()[node].leaves);
  if (tree_editor::subtree(dict.spec(), node) == object.form) {
    for (std::size_t i = 0; i < before; ++i) dict.leaves()[first + i] = value_of<T>(object.leaves[i]);
    return;
  }
  tree_spec spec = dict.spec();
  tree_editor(spec).replace(node, object.form);
  std::vector<state_value<T>> leaves = std::move(dict).take_leaves();
  std::vector<state_value<T>> values;
  for (const plain_value& leaf : object.leaves) values.push_back(value_of<T>(leaf));
  const auto at = leaves.erase(leaves.begin() + static_cast<std::ptrdiff_t>(first),
                               leaves.begin() + static_cast<std::ptrdiff_t>(first + before));
  leaves.insert(at, std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  dict = *state_dict<T>::make(std::move(spec), std::move(leaves));
}

template <class Dict>
result<basic_local_state<view_through<Dict>>> local_view_of_any(Dict& dict, key_policy policy) {
  auto items = items_of(dict, policy);
  if (!items) return std::move(items).error();
  basic_local_state<view_through<Dict>> made;
  const auto leaves = dict.leaves();
  for (named_item& item : *items) {
    const bool is_leaf = dict.spec().nodes()[item.node].kind == node_kind::leaf;
    if (is_leaf && is_tensor(leaves[item.first_leaf])) {
      auto tensor = held_of(leaves[item.first_leaf]);
      if (!tensor) return std::move(tensor).error().with_key(item.name);
      if (tensor->type == dtype::undefined) continue;
      tensor->where = std::move(item.where);
      made.tensors.push_back(*std::move(tensor));
      continue;
    }
    local_state_object object{
        std::move(item.where), is_leaf ? tree_spec() : tree_editor::subtree(dict.spec(), item.node), {}};
    for (std::size_t i = 0; i < item.leaves; ++i) {
      if (is_tensor(leaves[item.first_leaf + i]))
        return fail(errc::invalid_argument, "a container that is kept as one object holds a tensor")
            .with_key(item.name);
      object.leaves.push_back(plain_of(leaves[item.first_leaf + i]));
    }
    made.objects.push_back(std::move(object));
  }
  return made;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns the part of a state dict that this rank holds: whole tensors, the innermost local shards of sharded tensors,
/// and this rank's boxes of dtensors (several for a strided shard). All other leaves are objects; a container of plain
/// values that `policy` keeps whole is one object. Views refer to the tensors of `dict`, which must not move; `load`
/// writes through them. A const dict gives read-only views, which suffice for `save`. A dtensor whose mesh does not
/// contain this rank is left out.
/// \errors errc::unsupported naming the key for a Partial dtensor, and for a sub-byte tensor that is cut;
///         errc::duplicate_key naming both paths if names collide; errc::invalid_argument for a container that is kept
///         whole but has a tensor among its plain values
/// Cost: O(nodes + shards + total length of names and paths). No elements are copied.
template <local_tensor T>
result<local_state> local_view(state_dict<T>& dict, key_policy policy = key_policy::torch_dcp) {
  return detail::local_view_of_any(dict, policy);
}
template <local_tensor T>
result<const_local_state> local_view(const state_dict<T>& dict, key_policy policy = key_policy::torch_dcp) {
  return detail::local_view_of_any(dict, policy);
}
template <local_tensor T>
void local_view(const state_dict<T>&& dict, key_policy policy = key_policy::torch_dcp) = delete;

/// Puts objects into a state dict, replacing the nodes at their paths. Use it for the objects that a load found.
/// \errors those of `state_dict::set`, with the path; errc::invalid_argument if leaves do not fit the form
/// Cost: as `state_dict::set`; O(nodes) for a container whose form changes.
template <local_tensor T>
result<void> set_objects(state_dict<T>& dict, std::span<const local_state_object> objects) {
  for (const local_state_object& object : objects) {
    const bool is_container = !object.form.nodes().empty();
    if (object.leaves.size() != (is_container ? object.form.leaves() : 1))
      return fail(errc::invalid_argument, "the leaves of an object do not match its structure")
          .with_key(to_string(object.where));
    if (!is_container || !dict.contains(object.where)) {
      auto set = dict.set(object.where, is_container ? state_value<T>() : detail::value_of<T>(object.leaves.front()));
      if (!set) return set;
    }
    if (is_container) detail::replace(dict, object);
  }
  return {};
}

}  // namespace shardmesh
