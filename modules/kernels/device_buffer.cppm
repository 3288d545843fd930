// SPDX-License-Identifier: Apache-2.0
// Owned bytes in the memory of some device.
export module shardmesh.kernels:device_buffer;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Owns bytes in some memory; move-only. Its maker defines how they are freed. A backend frees them in the order of the
/// stream on which they were allocated, so that work enqueued there may still use them.
class device_buffer {
 public:
  device_buffer() = default;
  /// `owner` frees the bytes in its destructor.
  device_buffer(std::byte* data, std::int64_t size_bytes, device where, std::shared_ptr<void> owner)
      : data_(data), size_bytes_(size_bytes), where_(where), owner_(std::move(owner)) {}
  device_buffer(device_buffer&& other) noexcept { swap(other); }
  device_buffer& operator=(device_buffer&& other) noexcept {
    device_buffer taken(std::move(other));
    swap(taken);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }
  device where() const { return where_; }

 private:
  void swap(device_buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(where_, other.where_);
    std::swap(owner_, other.owner_);
  }
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
  device where_{};
  std::shared_ptr<void> owner_;
};

}  // namespace shardmesh
