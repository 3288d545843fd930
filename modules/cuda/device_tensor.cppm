// SPDX-License-Identifier: Apache-2.0
// device_tensor: a row-major tensor that owns its memory on a device. The backend of the device allocates the memory.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.cuda:device_tensor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;

export namespace shardmesh {

/// A row-major tensor in the memory of a device that a backend reaches (for instance by an open `cuda_scope`).
/// Move-only; `copy_between` copies it, also from and to the host.
/// With a stream, the memory is allocated and freed in the stream's order. It may be used there at once, and work
/// enqueued there may use it even after the tensor is destroyed. The stream must outlive the tensor.
/// Without a stream, the memory may be used everywhere, and is freed in the order of the device's default stream. Wait
/// for work on other streams before you destroy the tensor.
class device_tensor {
 public:
  device_tensor() = default;
  device_tensor(device_tensor&&) noexcept = default;
  device_tensor& operator=(device_tensor&&) noexcept = default;
  device_tensor(const device_tensor&) =
      SHARDMESH_REFUSE("a device_tensor is not copied by accident: std::move it, or copy_between two of them");
  device_tensor& operator=(const device_tensor&) =
      SHARDMESH_REFUSE("a device_tensor is not copied by accident: std::move it, or copy_between two of them");
  ~device_tensor() = default;

  /// Makes a tensor with uninitialised memory.
  /// \errors errc::unsupported naming a device that no backend reaches; errc::overflow when the size does not fit into
  ///         64 bits; errc::unaligned for a sub-byte type that does not fill whole bytes; errc::no_memory with the
  ///         bytes and the device
  static result<device_tensor> make(dtype type, const extents& sizes, device where = {device_type::cuda, -1},
                                    stream_ref stream = {});

  dtype type() const { return type_; }
  const extents& sizes() const { return sizes_; }
  /// Returns the device, with its index.
  device where() const { return memory_.where(); }
  std::byte* data() { return memory_.data(); }
  const std::byte* data() const { return memory_.data(); }
  std::int64_t size_bytes() const { return memory_.size_bytes(); }
  /// Returns the bytes, for communicators. The host must not access these addresses.
  std::span<std::byte> bytes() { return {memory_.data(), static_cast<std::size_t>(memory_.size_bytes())}; }
  std::span<const std::byte> bytes() const { return {memory_.data(), static_cast<std::size_t>(memory_.size_bytes())}; }

 private:
  dtype type_ = dtype::undefined;
  extents sizes_;
  device_buffer memory_;
};

}  // namespace shardmesh

template <>
struct shardmesh::adapter<shardmesh::device_tensor> {
  static tensor_view view(device_tensor& tensor) {
    return {tensor.data(), tensor.type(), tensor.where(), tensor.sizes(), contiguous_strides(tensor.sizes())};
  }
  static const_tensor_view view(const device_tensor& tensor) {
    return {tensor.data(), tensor.type(), tensor.where(), tensor.sizes(), contiguous_strides(tensor.sizes())};
  }
  static device_tensor allocate(dtype type, const extents& sizes, device where) {
    return device_tensor::make(type, sizes, where).value();
  }
};
