// SPDX-License-Identifier: Apache-2.0
// stream and event: CUDA's queues of work and points in them, owned. Not here: work (backend).
export module shardmesh.cuda:stream;

import shardmesh.std;
import shardmesh.core;
import :runtime;

export namespace shardmesh::cuda {

/// A point in a stream's work; move-only. Until it is recorded it is passed by everybody.
class event {
 public:
  event() = default;
  /// \errors those of `runtime::check`
  static result<event> make(const runtime& cuda, device where);
  event(event&& other) noexcept { swap(other); }
  event& operator=(event&& other) noexcept {
    event taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~event();

  /// It is from now on behind what was enqueued on `stream` (null: the device's default stream) so far.
  result<void> record(stream_ref stream);
  /// True when everything before it is done. \errors what the device says of work that failed
  result<bool> done() const;
  /// Waits on the host.
  result<void> wait() const;
  /// What is enqueued on `stream` from now on begins after it.
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

/// A queue of work of one device, apart from the device's default stream; move-only. It outlives memory that was
/// allocated on it; its destructor does not wait for its work.
class stream {
 public:
  stream() = default;
  /// \errors errc::invalid_argument: no such device; those of `runtime::check`
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
  /// Waits on the host until all that was enqueued is done.
  result<void> synchronize() const;
  /// True when all that was enqueued is done.
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
