// SPDX-License-Identifier: Apache-2.0
// for_each_element: visits the elements that a rank holds, with their indices in the whole tensor. Moving elements is
// in room transfer; arithmetic over whole views is in room kernels.
module;
#include <shardmesh/refuse.hpp>
#include <shardmesh/shard_adapter.hpp>
export module shardmesh.sharding:elements;

import shardmesh.std;
import shardmesh.transfer;
import :dtensor;
import :metadata;
import :metadata_like;
import :shard;
import :shard_like;

export namespace shardmesh {

/// `f(const extents& global, const extents& local)`: visits an element by its indices in the whole tensor and in the
/// tensor that holds it.
template <class F>
concept index_visitor = std::invocable<F&, const extents&, const extents&>;

/// `f(const extents& global, E& element)`: visits an element, with its index in the whole tensor.
template <class F, class E>
concept element_visitor = std::invocable<F&, const extents&, E&>;

}  // namespace shardmesh

namespace shardmesh::detail {

// A run of elements that are neighbours in the last dimension: the indices of its first element, and its length. A
// scalar is a run of length 1. The callee may advance the indices, because each run gets fresh ones.
using run_of_indices = function_ref<void(extents& global, extents& local, std::int64_t count)>;
// The same run in memory.
using run_of_elements =
    function_ref<void(extents& global, const std::byte* first, std::int64_t count, std::int64_t stride_bytes)>;

// The memory requirements of a C++ type.
struct element_type {
  dtype type;
  std::size_t alignment;
};

// Visits all runs of a box, row-major. The box begins at index `local` of the tensor that holds it.
void each_run(const box& where, const extents& local, run_of_indices visit);
// Visits the same runs in that tensor's memory. Precondition: the box lies in the tensor.
void each_run(const box& where, const extents& local, const const_tensor_view& tensor, run_of_elements visit);

// Visits the elements of `rank`. The overload with `tensor` needs all of them in slot 0. `tensor` is that slot, exactly
// as large as its fragments.
result<void> each_run_of_rank(const distribution& d, std::int32_t rank, run_of_indices visit);
result<void> each_run_of_rank(const distribution& d, std::int32_t rank, const const_tensor_view& tensor,
                              element_type type, run_of_elements visit);

// Checks that a shard's box and its tensor fit each other; returns the box in the whole tensor. `origin`: the offsets
// of the enclosing shard in the whole tensor; null if there is none.
result<box> check_shard(const shard_metadata_view& shard, const extents& sizes, const extents* origin);
result<void> check_element_memory(const const_tensor_view& tensor, element_type type);

// Adapts f to runs: calls it for every index of a run.
template <class F>
auto for_each_index(F& f) {
  return [&f](extents& global, extents& local, std::int64_t count) {
    if (global.empty()) return static_cast<void>(f(std::as_const(global), std::as_const(local)));
    const std::size_t last = global.rank() - 1;
    for (std::int64_t i = 0; i < count; ++i, ++global[last], ++local[last])
      static_cast<void>(f(std::as_const(global), std::as_const(local)));
  };
}

// All tensors are found through read-only views. E is const unless the caller's tensor is writable, so the cast never
// makes const memory writable.
template <class E>
E& element_at(const std::byte* memory) {
  return *reinterpret_cast<E*>(const_cast<std::byte*>(memory));
}
template <class E, class F>
auto for_each_value(F& f) {
  return [&f](extents& global, const std::byte* first, std::int64_t count, std::int64_t stride_bytes) {
    if (global.empty()) return static_cast<void>(f(std::as_const(global), element_at<E>(first)));
    const std::size_t last = global.rank() - 1;
    for (std::int64_t i = 0; i < count; ++i, ++global[last])
      static_cast<void>(f(std::as_const(global), element_at<E>(first + i * stride_bytes)));
  };
}

template <class E>
inline constexpr element_type element_type_of{dtype_of<std::remove_const_t<E>>, alignof(E)};

// Appends the tensors in a shard to `found`, with the boxes of the whole tensor that they hold: the shard's own tensor,
// or those of the shards nested in it. `origin`: as for `check_shard`. Callers visit elements only after all tensors
// have passed the checks.
template <shard_like S>
result<void> each_tensor_in(const S& shard, const extents* origin, std::int32_t depth,
                            std::vector<std::pair<box, const_tensor_view>>& found) {
  const shard_metadata_view metadata = shard_adapter<S>::metadata(shard);
  if constexpr (can_be_nested<S>) {
    if (const auto* nested = nested_in(shard)) {
      using N = std::remove_cvref_t<decltype(*nested)>;
      if (depth == max_shard_nesting) return nested_too_deeply(metadata);
      const auto sizes = as_extents(sharded_tensor_metadata_view(sharded_tensor_adapter<N>::metadata(*nested)).size());
      if (!sizes) return sizes.error();
      const auto where = check_shard(metadata, *sizes, origin);
      if (!where) return where.error();
      for (const auto& inner : sharded_tensor_adapter<N>::local_shards(*nested))
        if (auto done = each_tensor_in(inner, &where->offsets, depth + 1, found); !done) return done;
      return {};
    }
  }
  const const_tensor_view tensor = view_of_shard(shard);
  auto where = check_shard(metadata, tensor.sizes, origin);
  if (!where) return std::move(where).error();
  found.emplace_back(*std::move(where), tensor);
  return {};
}

template <class E, shard_like S, class F>
result<void> for_each_value_of(const S& shard, F& f) {
  std::vector<std::pair<box, const_tensor_view>> tensors;
  if (auto found = each_tensor_in(shard, nullptr, 0, tensors); !found) return found;
  for (const auto& [where, tensor] : tensors)
    if (auto valid = check_element_memory(tensor, element_type_of<E>); !valid)
      return at_shard(std::move(valid).error(), shard_adapter<S>::metadata(shard));
  for (const auto& [where, tensor] : tensors)
    each_run(where, extents::filled(where.rank(), 0), tensor, for_each_value<E>(f));
  return {};
}

template <class E, class F>
result<void> for_each_value_of(const layout& l, std::int32_t rank, const const_tensor_view& tensor, F& f) {
  const auto held = distribute(l);
  if (!held) return held.error();
  return each_run_of_rank(*held, rank, tensor, element_type_of<E>, for_each_value<E>(f));
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Calls f for every element that a rank holds of a layout, a distribution, or a distributed tensor.
/// \param rank  the owner; a rank that holds nothing has no elements
/// \param f     `f(const extents& global, const extents& local)`: the element's indices in the whole tensor, and in the
///              local tensor of its fragment's slot. Fragments come in slot order, and each one's elements in row-major
///              order. A strided shard has several fragments
/// \errors those of `distribution_of`
/// Cost: O(elements). No communication.
template <distributed D, index_visitor F>
result<void> for_each_element(const D& d, std::int32_t rank, F&& f) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return detail::each_run_of_rank(*held, rank, detail::for_each_index(f));
}

/// Calls f for every element of this rank's part of a dtensor, as above.
template <local_tensor T, index_visitor F>
result<void> for_each_element(const dtensor<T>& tensor, F&& f) {
  return for_each_element(tensor.layout(), tensor.rank(), f);
}

/// Calls f for every element of a shard of any type. For a nested shard these are the elements of the innermost shards,
/// and local indices are indices in their tensors.
/// \errors errc::shape_mismatch when the metadata does not have the tensor's sizes, errc::out_of_bounds when it is not
///         a valid box, errc::invalid_argument beyond `max_shard_nesting`; each names the rank and the box
template <shard_like S, index_visitor F>
result<void> for_each_element(const S& shard, F&& f) {
  std::vector<std::pair<box, const_tensor_view>> tensors;
  if (auto found = detail::each_tensor_in(shard, nullptr, 0, tensors); !found) return found;
  for (const auto& [where, tensor] : tensors)
    detail::each_run(where, extents::filled(where.rank(), 0), detail::for_each_index(f));
  return {};
}

/// Calls f for every element of this rank's part; f may modify it: `for_each_element<float>(tensor, f)`.
/// \param f  `f(const extents& global, E& element)`: the element's index in the whole tensor, and the element
/// \errors errc::dtype_mismatch when the tensor's elements are not E, errc::unsupported for memory that is not the
///         host's, errc::unaligned for memory that is not aligned to E; each before f is called; those of `distribute`
/// Cost: O(elements), any strides. No communication.
template <native_element E, local_tensor T, element_visitor<E> F>
result<void> for_each_element(dtensor<T>& tensor, F&& f) {
  if (!tensor.has_local()) return {};
  return detail::for_each_value_of<E>(tensor.layout(), tensor.rank(), view_of(tensor.local()), f);
}
/// Calls f for every element of this rank's part, read-only: `f(const extents& global, const E& element)`.
template <native_element E, local_tensor T, element_visitor<const E> F>
result<void> for_each_element(const dtensor<T>& tensor, F&& f) {
  if (!tensor.has_local()) return {};
  return detail::for_each_value_of<const E>(tensor.layout(), tensor.rank(), view_of(tensor.local()), f);
}

/// Calls f for every element of a shard of any type, or of the innermost shards in it; f may modify them.
/// \errors as above, and those of the overload without E
template <native_element E, shard_like S, element_visitor<E> F>
  requires(!std::is_const_v<S>)
result<void> for_each_element(S& shard, F&& f) {
  return detail::for_each_value_of<E>(std::as_const(shard), f);
}
/// Calls f for every element of a shard of any type, read-only.
template <native_element E, shard_like S, element_visitor<const E> F>
result<void> for_each_element(const S& shard, F&& f) {
  return detail::for_each_value_of<const E>(shard, f);
}

/// Calls f for every element of a rank's local tensor, given a layout, a distribution, or a distributed tensor; f may
/// modify it.
/// \errors as above; errc::shape_mismatch when the tensor is not as large as the rank's part; errc::unsupported when
///         the rank holds more than one tensor
template <native_element E, distributed D, local_tensor T, element_visitor<E> F>
  requires(!std::is_const_v<T>)
result<void> for_each_element(const D& d, std::int32_t rank, T& local, F&& f) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return detail::each_run_of_rank(*held, rank, view_of(local), detail::element_type_of<E>,
                                  detail::for_each_value<E>(f));
}
/// Calls f for every element of a rank's local tensor, read-only.
template <native_element E, distributed D, local_tensor T, element_visitor<const E> F>
result<void> for_each_element(const D& d, std::int32_t rank, const T& local, F&& f) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return detail::each_run_of_rank(*held, rank, view_of(local), detail::element_type_of<E>,
                                  detail::for_each_value<const E>(f));
}

/// Refuses a function that is not an `index_visitor`.
template <class X, class F>
  requires(!index_visitor<F> && !std::integral<std::remove_cvref_t<F>>)
result<void> for_each_element(const X& tensor, F&& f) = SHARDMESH_REFUSE(
    "for_each_element calls f(const extents& global, const extents& local); with an element type, as in "
    "for_each_element<float>, f(const extents& global, float& element)");
/// Refuses a function that is not an `element_visitor`.
template <native_element E, class X, class F>
  requires(!element_visitor<F, std::conditional_t<std::is_const_v<std::remove_reference_t<X>>, const E, E>>)
result<void> for_each_element(X&& tensor, F&& f) =
    SHARDMESH_REFUSE("for_each_element<E> calls f(const extents& global, E& element), or const E& of what is const");

}  // namespace shardmesh
