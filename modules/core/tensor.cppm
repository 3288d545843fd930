// SPDX-License-Identifier: Apache-2.0
// Views of tensors: the adapter, the concepts over it, and sub-views. Not here: memory of our own (host_tensor).
export module shardmesh.core:tensor;

import shardmesh.std;
import :box;
import :dtype;
import :extents;
import :result;

export namespace shardmesh {
/// A tensor of any framework: `adapter<T>` gives a `tensor_view` of it. `T const` is asked for as T.
template <class T>
concept local_tensor = requires(T& t) {
  { adapter<std::remove_const_t<T>>::view(t) } -> std::same_as<tensor_view>;
};

/// A local tensor that functions can also make: `allocate` returns an uninitialised row-major tensor.
template <class T>
concept allocatable_tensor = local_tensor<T> && requires(dtype type, const extents& sizes, device where) {
  { adapter<std::remove_const_t<T>>::allocate(type, sizes, where) } -> std::same_as<std::remove_const_t<T>>;
};

/// Row-major strides, in elements. Sizes of 0 count as 1, as in PyTorch; a stride that does not fit then (or of sizes
/// that are no valid tensor's) is 2^63 - 1.
extents contiguous_strides(const extents& sizes);
/// Row-major without gaps (dimensions of size 1 may have any stride; an empty tensor is contiguous).
bool is_contiguous(const tensor_view& view);
/// Number of elements. Precondition: the sizes are a valid tensor's.
std::int64_t numel(const tensor_view& view);
std::int64_t numel(const extents& sizes);
/// The part of `view` at `b` (in the view's own indices). Precondition: `b` lies within, whole-byte dtype.
tensor_view subview(const tensor_view& view, const box& b);

/// Whether the host may follow the view's pointer: everything here that reads or writes memory asks first.
/// \errors errc::unsupported naming the device
result<void> check_host_memory(const tensor_view& view);

}  // namespace shardmesh
