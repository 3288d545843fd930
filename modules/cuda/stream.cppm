// SPDX-License-Identifier: Apache-2.0
// stream and event: owners of CUDA's work queues, and of points in them. The work itself is in backend.
export module shardmesh.cuda:stream;

import shardmesh.std;
import shardmesh.core;
import :runtime;

export namespace shardmesh::cuda {

/// A point in a stream's work. Move-only. Before it is recorded, it counts as passed.
class event {
 public:
  event() = default;
  /// Makes an event of a device. \errors the errors of `runtime::check`
  static result<event> make(const runtime& cuda, device where);
  event(event&& other) noexcept { swap(other); }
  event& operator=(event&& other) noexcept {
    event taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~event();

  /// Places the event behind all work enqueued so far on `stream` (null: the device's default stream).
  result<void> record(stream_ref stream);
  /// Returns whether all work before the event is done. \errors the device's error when that work failed
  result<bool> done() const;
  /// Waits for the event on the host.
  result<void> wait() const;
  /// Makes work that is enqueued on `stream` from now on begin after the event.
  result<void> hold(stream_ref stream) const;
  device where() const { return where_; }
  bool is_made() const { return handle_ != nullptr; }

 private:
  void swap(event& other) noexcept {
    std::swap(cuda_, other.cuda_);
    std::swap(where_, other.where_);
    std::swap(handle_, other.handle_);
  }
  std::optional<runtime> cuda_;
  device where_{};
  void* handle_ = nullptr;
};

/// A queue of work of one device, independent of the device's default stream. Move-only. It must outlive memory that
/// was allocated on it. Its destructor does not wait for its work.
class stream {
 public:
  stream() = default;
  /// Makes a stream of a device. \errors errc::invalid_argument: no such device; the errors of `runtime::check`
  static result<stream> make(const runtime& cuda, device where = {device_type::cuda, -1});
  stream(stream&& other) noexcept { swap(other); }
  stream& operator=(stream&& other) noexcept {
    stream taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~stream();

  stream_ref ref() const { return {handle_}; }
  device where() const { return where_; }
  bool is_made() const { return handle_ != nullptr; }
  /// Waits on the host until all enqueued work is done.
  result<void> synchronize() const;
  /// Returns whether all enqueued work is done.
  result<bool> done() const;

 private:
  void swap(stream& other) noexcept {
    std::swap(cuda_, other.cuda_);
    std::swap(where_, other.where_);
    std::swap(handle_, other.handle_);
  }
  std::optional<runtime> cuda_;
  device where_{};
  void* handle_ = nullptr;
};

}  // namespace shardmesh::cuda
