// SPDX-License-Identifier: Apache-2.0
// device_buffer: bytes in some device's memory that somebody owns.
export module shardmesh.kernels:device_buffer;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Owns bytes in a memory; move-only. Whoever made it knows how they are freed: a backend frees in the order of the
/// stream that they were allocated on, so that work which was enqueued there may still use them.
class device_buffer {
 public:
  device_buffer() = default;
  /// `owner` frees the bytes when it goes.
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
