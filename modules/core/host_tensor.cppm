// SPDX-License-Identifier: Apache-2.0
// host_tensor: a row-major tensor that owns host memory, for users without a framework and for tests.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/refuse.hpp>
export module shardmesh.core:host_tensor;

import shardmesh.std;
import :dtype;
import :extents;
import :result;
import :tensor;

export namespace shardmesh {

/// A row-major tensor on the host. It is movable but not copyable; call `clone` to copy it. Its memory is aligned to 64
/// bytes.
class host_tensor {
 public:
  host_tensor() = default;
  host_tensor(host_tensor&&) noexcept = default;
  host_tensor& operator=(host_tensor&&) noexcept = default;
  host_tensor(const host_tensor&) =
      SHARDMESH_REFUSE("a host_tensor is not copied by accident: std::move it, or clone() it");
  host_tensor& operator=(const host_tensor&) =
      SHARDMESH_REFUSE("a host_tensor is not copied by accident: std::move it, or clone() it");
  ~host_tensor() = default;
  /// Makes a tensor with uninitialised memory. \errors errc::overflow when the size does not fit; errc::unaligned for a
  /// sub-byte type that does not fill whole bytes; errc::no_memory when the allocation fails. Cost: one allocation.
  static result<host_tensor> make(dtype type, const extents& sizes);
  /// Makes a tensor filled with zeros; errors as for `make`.
  static result<host_tensor> zeros(dtype type, const extents& sizes);

  dtype type() const { return type_; }
  const extents& sizes() const { return sizes_; }
  std::span<std::byte> bytes() { return {data_.get(), size_bytes_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_bytes_}; }
  /// The elements, in row-major order. Precondition: `type() == dtype_of<T>`.
  template <native_element T>
  std::span<T> values() {
    return SHARDMESH_ASSERT(type_ == dtype_of<T>),
           std::span<T>(reinterpret_cast<T*>(data_.get()), size_bytes_ / sizeof(T));
  }
  template <native_element T>
  std::span<const T> values() const {
    return SHARDMESH_ASSERT(type_ == dtype_of<T>),
           std::span<const T>(reinterpret_cast<const T*>(data_.get()), size_bytes_ / sizeof(T));
  }
  result<host_tensor> clone() const;

 private:
  struct free_aligned {
    void operator()(std::byte* memory) const;
  };
  dtype type_ = dtype::undefined;
  extents sizes_;
  std::size_t size_bytes_ = 0;
  std::unique_ptr<std::byte[], free_aligned> data_;
};

}  // namespace shardmesh

template <>
struct shardmesh::adapter<shardmesh::host_tensor> {
  static tensor_view view(host_tensor& tensor) {
    return {tensor.bytes().data(), tensor.type(), device{}, tensor.sizes(), contiguous_strides(tensor.sizes())};
  }
  static const_tensor_view view(const host_tensor& tensor) {
    return {tensor.bytes().data(), tensor.type(), device{}, tensor.sizes(), contiguous_strides(tensor.sizes())};
  }
  static host_tensor allocate(dtype type, const extents& sizes, device) {
    return host_tensor::make(type, sizes).value();
  }
};
