// SPDX-License-Identifier: Apache-2.0
// held_by: what this rank holds of a state dict, as room tree's held_state, for saving and loading on many ranks.
// Not here: doing so (checkpoint).
export module shardmesh.state:held_by;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :dict_tree;
import :flat;
import :value;

namespace shardmesh::detail {

// What is const is held as views that are only read: `Value`, `Sharded` and `Dict` may be const.
template <class Held>
using view_through = std::conditional_t<std::is_const_v<Held>, const_tensor_view, tensor_view>;

/// The part of `memory` at `inside`, or all of it. errc::unsupported when elements are smaller than a byte and cut.
template <tensor_view_type View>
result<View> part_of(const View& memory, const box& inside) {
  if (inside == box::whole(memory.sizes)) return memory;
  if (bits(memory.type) % 8 != 0) return fail(errc::unsupported, "a tensor of elements smaller than a byte is cut");
  return subview(memory, inside);
}

/// The innermost shards, moved to their places in the whole. No recursion.
template <class Sharded>
void add_shards(Sharded& outer, std::vector<basic_held_part<view_through<Sharded>>>& parts) {
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

// The tensors of a value that a load has filled.
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
result<basic_held_tensor<view_through<Value>>> held_of(Value& value) {
  basic_held_tensor<view_through<Value>> made;
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
    if (!laid->has_local()) return made;  // outside of the mesh: not even the dtype is known
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

/// Puts a container in place of what is at its path. Precondition: something is there; the leaves fit the form.
template <local_tensor T>
void replace(state_dict<T>& dict, const held_object& object) {
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
result<basic_held_state<view_through<Dict>>> held_by_any(Dict& dict, key_policy policy) {
  auto items = items_of(dict, policy);
  if (!items) return std::move(items).error();
  basic_held_state<view_through<Dict>> made;
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
    held_object object{std::move(item.where), is_leaf ? tree_spec() : tree_editor::subtree(dict.spec(), item.node), {}};
    for (std::size_t i = 0; i < item.leaves; ++i) {
      if (is_tensor(leaves[item.first_leaf + i]))
        return fail(errc::invalid_argument, "a tensor lies in a container that is kept whole").with_key(item.name);
      object.leaves.push_back(plain_of(leaves[item.first_leaf + i]));
    }
    made.objects.push_back(std::move(object));
  }
  return made;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// What this rank holds of a state dict: tensors whole; of sharded tensors the innermost local shards; of dtensors the
/// boxes of this rank (several for a strided shard); everything else as objects, where `policy` keeps a container of
/// plain values whole as one. Views refer to the tensors of `dict`, which must stay where it is: `load` fills them. Of
/// a const dict they are only read: enough for `save`.
/// A dtensor of whose mesh this rank is no member is left out.
/// \errors errc::unsupported naming the key for a Partial dtensor, and for a sub-byte tensor that is cut;
///         errc::duplicate_key naming both paths when names collide; errc::invalid_argument for a container of which
///         only a part is plain values
/// Cost: O(nodes + shards + total length of names and paths). No elements are copied.
template <local_tensor T>
result<held_state> held_by(state_dict<T>& dict, key_policy policy = key_policy::torch_dcp) {
  return detail::held_by_any(dict, policy);
}
template <local_tensor T>
result<const_held_state> held_by(const state_dict<T>& dict, key_policy policy = key_policy::torch_dcp) {
  return detail::held_by_any(dict, policy);
}
template <local_tensor T>
void held_by(const state_dict<T>&& dict, key_policy policy = key_policy::torch_dcp) = delete;

/// Puts objects into a state dict, at their paths, in place of what is there: what a load found, after it filled the
/// tensors. \errors those of `state_dict::set`, with the path; errc::invalid_argument when leaves do not fit the form
/// Cost: as `state_dict::set`; O(nodes) for a container whose form changes.
template <local_tensor T>
result<void> set_objects(state_dict<T>& dict, std::span<const held_object> objects) {
  for (const held_object& object : objects) {
    const bool is_container = !object.form.nodes().empty();
    if (object.leaves.size() != (is_container ? object.form.leaves() : 1))
      return fail(errc::invalid_argument, "an object's leaves do not fit its form").with_key(to_string(object.where));
    if (!is_container || !dict.contains(object.where)) {
      auto set = dict.set(object.where, is_container ? state_value<T>() : detail::value_of<T>(object.leaves.front()));
      if (!set) return set;
    }
    if (is_container) detail::replace(dict, object);
  }
  return {};
}

}  // namespace shardmesh
