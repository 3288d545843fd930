// SPDX-License-Identifier: Apache-2.0
// Views of tensors: the adapter, the concepts over it, and sub-views. Not here: memory of our own (host_tensor).
export module shardmesh.core:tensor;

import shardmesh.std;
import :box;
import :dtype;
import :extents;
import :result;

export namespace shardmesh {
/// A view of a tensor: one that is written through, or one that is only read.
template <class V>
concept tensor_view_type = std::same_as<V, tensor_view> || std::same_as<V, const_tensor_view>;

/// A tensor of any framework: `adapter<T>` gives a `tensor_view` of it. `T const` is asked for as T.
template <class T>
concept local_tensor = requires(std::remove_const_t<T>& t) {
  { adapter<std::remove_const_t<T>>::view(t) } -> std::same_as<tensor_view>;
};

/// A local tensor that functions can also make: `allocate` returns an uninitialised row-major tensor.
template <class T>
concept allocatable_tensor = local_tensor<T> && requires(dtype type, const extents& sizes, device where) {
  { adapter<std::remove_const_t<T>>::allocate(type, sizes, where) } -> std::same_as<std::remove_const_t<T>>;
};

/// The memory of a tensor: writable of a `T&`, to be read of a `const T&`. Of a temporary there is none.
template <local_tensor T>
  requires(!std::is_const_v<T>)
tensor_view view_of(T& tensor) {
  return adapter<T>::view(tensor);
}
template <local_tensor T>
const_tensor_view view_of(const T& tensor) {
  if constexpr (requires {
                  { adapter<T>::view(tensor) } -> std::convertible_to<const_tensor_view>;
                })
    return adapter<T>::view(tensor);
  else  // An adapter may know `view(T&)` alone. It makes a view and changes nothing, and what it made is only read
        // here.
    return adapter<T>::view(const_cast<T&>(tensor));
}
template <local_tensor T>
void view_of(const T&& tensor) = delete;

/// A view of a tensor that is one: what its adapter's `check` says of others (lazily conjugated, sparse, ...) comes out
/// as its error. Where an adapter has no `check`, every tensor is.
template <local_tensor T>
result<void> check_tensor(const T& tensor) {
  if constexpr (requires {
                  { adapter<T>::check(tensor) } -> std::same_as<result<void>>;
                })
    return adapter<T>::check(tensor);
  else
    return {};
}

/// Tells the adapter that the elements were written (its framework may count versions). Where it has no `written`,
/// nothing is done.
template <local_tensor T>
  requires(!std::is_const_v<T>)
void note_written(T& tensor) {
  if constexpr (requires { adapter<T>::written(tensor); }) adapter<T>::written(tensor);
}
/// A tensor whose framework wants to know that its elements were written: its adapter has the `written` that
/// `note_written` calls.
template <class T>
concept counts_writes = requires(T& tensor) { adapter<T>::written(tensor); };

/// Row-major strides, in elements. Sizes of 0 count as 1, as in PyTorch; a stride that does not fit then (or of sizes
/// that are no valid tensor's) is 2^63 - 1.
extents contiguous_strides(const extents& sizes);
/// Row-major without gaps (dimensions of size 1 may have any stride; an empty tensor is contiguous).
bool is_contiguous(const extents& sizes, const extents& strides);
template <tensor_view_type View>
bool is_contiguous(const View& view) {
  return is_contiguous(view.sizes, view.strides);
}
/// Number of elements. Precondition: the sizes are a valid tensor's.
std::int64_t numel(const extents& sizes);
template <tensor_view_type View>
std::int64_t numel(const View& view) {
  return numel(view.sizes);
}
/// The part of `view` at `b` (in the view's own indices), written through as `view` is. Precondition: `b` lies within,
/// whole-byte dtype.
template <tensor_view_type View>
View subview(const View& view, const box& b) {
  View part = view;
  part.sizes = b.sizes;
  if (b.is_empty()) return part;  // an empty tensor may have no memory
  for (std::size_t d = 0; d < b.rank(); ++d) part.data += b.offsets[d] * view.strides[d] * item_bytes(view.type);
  return part;
}

/// Whether the host may follow a pointer into this device's memory: everything here that reads or writes memory asks
/// first. \errors errc::unsupported naming the device
result<void> check_host_memory(device where);
template <tensor_view_type View>
result<void> check_host_memory(const View& view) {
  return check_host_memory(view.where);
}

}  // namespace shardmesh
