// SPDX-License-Identifier: Apache-2.0
// Concepts and functions over the `adapter` of a tensor type, and sub-views. Memory of our own is in `host_tensor`.
export module shardmesh.core:tensor;

import shardmesh.std;
import :box;
import :dtype;
import :extents;
import :result;

export namespace shardmesh {
/// A view of a tensor, writable or read-only.
template <class V>
concept tensor_view_type = std::same_as<V, tensor_view> || std::same_as<V, const_tensor_view>;

/// A tensor of any framework: `adapter<T>` provides a `tensor_view` of it. The concept treats `const T` as T.
template <class T>
concept local_tensor = requires(std::remove_const_t<T>& t) {
  { adapter<std::remove_const_t<T>>::view(t) } -> std::same_as<tensor_view>;
};

/// A local tensor that functions can also create: `allocate` returns an uninitialised row-major tensor.
template <class T>
concept allocatable_tensor = local_tensor<T> && requires(dtype type, const extents& sizes, device where) {
  { adapter<std::remove_const_t<T>>::allocate(type, sizes, where) } -> std::same_as<std::remove_const_t<T>>;
};

/// Returns a view of the tensor's memory: writable for a `T&`, read-only for a `const T&`. Temporaries do not compile.
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
  else  // The adapter may have only `view(T&)`. It changes nothing, and the view is only read here.
    return adapter<T>::view(const_cast<T&>(tensor));
}
template <local_tensor T>
void view_of(const T&& tensor) = delete;

/// Reports a tensor that no view can describe (lazily conjugated, sparse, ...): the error comes from the adapter's
/// `check`. Without a `check`, every tensor is accepted.
template <local_tensor T>
result<void> check_tensor(const T& tensor) {
  if constexpr (requires {
                  { adapter<T>::check(tensor) } -> std::same_as<result<void>>;
                })
    return adapter<T>::check(tensor);
  else
    return {};
}

/// Notifies the adapter that the elements were written, for frameworks that count versions. Does nothing when the
/// adapter has no `written`.
template <local_tensor T>
  requires(!std::is_const_v<T>)
void note_written(T& tensor) {
  if constexpr (requires { adapter<T>::written(tensor); }) adapter<T>::written(tensor);
}
/// A tensor whose adapter has the `written` that `note_written` calls.
template <class T>
concept counts_writes = requires(T& tensor) { adapter<T>::written(tensor); };

/// Row-major strides, in elements. A size of 0 counts as 1, as in PyTorch. A stride that does not fit is 2^63 - 1.
extents contiguous_strides(const extents& sizes);
/// Returns whether the strides are row-major without gaps. Dimensions of size 1 may have any stride, and an empty
/// tensor is contiguous.
bool is_contiguous(const extents& sizes, const extents& strides);
template <tensor_view_type View>
bool is_contiguous(const View& view) {
  return is_contiguous(view.sizes, view.strides);
}
/// Checks that a destination has a place of its own for each element. A stride of 0, as PyTorch's `expand` makes, gives
/// several elements one place: such memory can only be read.
/// \errors errc::unsupported
result<void> check_fillable(const extents& sizes, const extents& strides);
template <tensor_view_type View>
result<void> check_fillable(const View& view) {
  return check_fillable(view.sizes, view.strides);
}
/// Number of elements. Precondition: the sizes are those of a valid tensor.
std::int64_t numel(const extents& sizes);
template <tensor_view_type View>
std::int64_t numel(const View& view) {
  return numel(view.sizes);
}
/// Returns the part of `view` within `b` (in the view's own indices). The part is writable when `view` is.
/// Precondition: `b` lies within the view, and the dtype has whole bytes.
template <tensor_view_type View>
View subview(const View& view, const box& b) {
  View part = view;
  part.sizes = b.sizes;
  if (b.is_empty()) return part;  // an empty tensor may have no memory
  for (std::size_t d = 0; d < b.rank(); ++d) part.data += b.offsets[d] * view.strides[d] * item_bytes(view.type);
  return part;
}

/// Checks that the host may access the memory of this device. Everything in the library that reads or writes memory
/// calls it first. \errors errc::unsupported naming the device
result<void> check_host_memory(device where);
template <tensor_view_type View>
result<void> check_host_memory(const View& view) {
  return check_host_memory(view.where);
}

}  // namespace shardmesh
