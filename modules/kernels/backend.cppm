// SPDX-License-Identifier: Apache-2.0
// A kernel backend serves the memory of some devices: it allocates memory, runs batches on it, and orders the work. The
// choice of a backend for a device is in `registry`.
module;
#include <shardmesh/kernels/batch.hpp>
export module shardmesh.kernels:backend;

import shardmesh.std;
import shardmesh.core;
import :batch;
import :device_buffer;

export namespace shardmesh {

/// A batch in its backend's form, with tables where the kernels read them. It is made once per plan and runs many
/// times, on any memory of the same shape. It belongs to the backend that made it.
class prepared_batch {
 public:
  virtual ~prepared_batch() = default;
  virtual std::size_t items() const = 0;
};

/// A point in a stream's work.
class device_event {
 public:
  virtual ~device_event() = default;
  /// Returns whether everything before the event is done. \errors the device's errors for failed work
  virtual result<bool> done() = 0;
  /// Waits for the event on the host.
  virtual result<void> wait() = 0;
  /// Makes work that is enqueued on `stream` from now on begin after the event.
  virtual result<void> hold(stream_ref stream) = 0;
};

/// A stream and its owner. Destroying the owner destroys the stream once its work is done. A null stream stands for the
/// backend's own order.
struct owned_stream {
  stream_ref stream{};
  std::shared_ptr<void> owner{};
};

/// The kernels and the memory of some devices. `backend_for` chooses a backend at run time, by the memory's device. A
/// backend is therefore a class with virtual functions, each of which does much work, and not a template parameter.
///
/// Order: the work of a stream is done in call order. A null stream is the backend's own order for that device; on the
/// host, a call does its work before it returns. Functions may be called from any thread.
class kernel_backend {
 public:
  virtual ~kernel_backend() = default;
  /// Name for errors and reports: "host", "kokkos (OpenMP)", ...
  virtual std::string_view name() const = 0;
  /// Returns whether the functions below accept memory of this device.
  virtual bool reaches(device where) const = 0;

  /// Allocates uninitialised memory, aligned to 256 bytes (64 on the host) and freed in the order of `stream`. For 0
  /// bytes, no memory is allocated.
  /// \errors errc::no_memory with the bytes and the device
  virtual result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) = 0;
  /// Allocates host memory with which `copy_across` is fast (pinned memory), or plain memory if the backend has none.
  virtual result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) = 0;

  /// Prepares a batch for memory of this device.
  /// \errors errc::unsupported for an item whose dtypes and operation have no kernel in this backend
  /// Cost: O(items), plus an upload if the table lies on a device.
  virtual result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device where) = 0;
  /// Launches a batch, once per phase, without allocation or upload. Memory is not checked: the maker of the items
  /// ensures that they lie within their slots.
  virtual result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref stream) = 0;

  /// Copies bytes between two memories. This backend reaches both, or one of them while the other is the host's.
  virtual result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                                   std::int64_t size_bytes, stream_ref stream) = 0;

  virtual result<std::unique_ptr<device_event>> record(device where, stream_ref stream) = 0;
  /// Makes a stream, which is independent of the backend's own order, if the backend has streams.
  virtual result<owned_stream> make_stream(device) { return owned_stream{}; }
};

}  // namespace shardmesh
