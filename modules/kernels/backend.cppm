// SPDX-License-Identifier: Apache-2.0
// kernel_backend: whoever reaches a memory: allocates it, runs batches on it, orders work. Not here: which backend is
// for which device (registry).
module;
#include <shardmesh/kernels/batch.hpp>
export module shardmesh.kernels:backend;

import shardmesh.std;
import shardmesh.core;
import :batch;
import :device_buffer;

export namespace shardmesh {

/// A batch as its backend keeps it: tables where the kernels read them. Made once per plan, run many times, on any
/// memory of the same shape. Belongs to the backend that made it.
class prepared_batch {
 public:
  virtual ~prepared_batch() = default;
  virtual std::size_t items() const = 0;
};

/// A point in a stream's work.
class device_event {
 public:
  virtual ~device_event() = default;
  /// True when everything before it is done. \errors what the device says of work that failed
  virtual result<bool> done() = 0;
  /// Waits for it on the host.
  virtual result<void> wait() = 0;
  /// What is enqueued on `stream` from now on begins after it.
  virtual result<void> hold(stream_ref stream) = 0;
};

/// A stream that somebody owns; it ends when its work is done. Without a stream: the backend's own order.
struct owned_stream {
  stream_ref stream{};
  std::shared_ptr<void> owner{};
};

/// Kernels and memory of some devices. Chosen at run time by where memory is (`backend_for`), never a template
/// parameter: so it is a class with virtual functions, each of which does much work.
///
/// Order: work of one stream is done in the order of the calls; a null stream is the backend's own order for that
/// device (for the host: at once, before the call returns). Functions may be called from any thread.
class kernel_backend {
 public:
  virtual ~kernel_backend() = default;
  /// "host", "kokkos (OpenMP)", ...: for errors and reports.
  virtual std::string_view name() const = 0;
  /// Whether memory of this device can be given to the functions below.
  virtual bool reaches(device where) const = 0;

  /// Uninitialised memory, aligned to 256 bytes (64 on the host), freed in the order of `stream`. Of 0 bytes: no
  /// memory.
  /// \errors errc::no_memory with the bytes and the device
  virtual result<device_buffer> allocate(std::int64_t size_bytes, device where, stream_ref stream) = 0;
  /// Host memory from and to which `copy_across` is fast (pinned); where there is none, plain memory.
  virtual result<device_buffer> allocate_staging(std::int64_t size_bytes, device where) = 0;

  /// \errors errc::unsupported for an item that this backend has no kernel for: dtypes and operation
  /// Cost: O(items), with an upload where the table lies on a device.
  virtual result<std::unique_ptr<prepared_batch>> prepare(std::span<const batch_item> items, device where) = 0;
  /// One launch per phase; no allocation and no upload. Memory is not checked: whoever made the items knows that they
  /// lie within their slots.
  virtual result<void> run(prepared_batch& batch, const batch_bases& bases, stream_ref stream) = 0;

  /// Bytes between two memories, of which this backend reaches one and the other is the host's, or reaches both.
  virtual result<void> copy_across(std::byte* to, device to_device, const std::byte* from, device from_device,
                                   std::int64_t size_bytes, stream_ref stream) = 0;

  virtual result<std::unique_ptr<device_event>> record(device where, stream_ref stream) = 0;
  /// A stream beside the backend's own order, where it has such.
  virtual result<owned_stream> make_stream(device) { return owned_stream{}; }
};

}  // namespace shardmesh
