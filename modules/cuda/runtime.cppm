// SPDX-License-Identifier: Apache-2.0
// runtime: the CUDA runtime library of this process, found when it is needed, and its errors as ours. Not here: memory
// (memory), streams (stream).
export module shardmesh.cuda:runtime;

import shardmesh.std;
import shardmesh.core;
import :functions;
import :shared_library;

export namespace shardmesh::cuda {

/// A loaded CUDA runtime. Cheap to copy; immutable; every member may be called from any thread. Loading does not touch
/// a GPU: without one, the first call that needs it gives an error.
class runtime {
 public:
  /// \param path  of the library; empty: what SHARDMESH_CUDART names, else libcudart.so.13, .12, or of any version
  /// \errors errc::unsupported: it cannot be loaded or lacks a function
  static result<runtime> load(const std::string& path = {});

  const functions& call() const { return *functions_; }
  /// Path or name of the library.
  const std::string& library() const { return library_.name(); }

  /// What a function gave, as a result. An error names the operation, the device and the library's text; its code is
  /// errc::no_memory, errc::unsupported (no GPU, no driver), errc::invalid_argument (a value or device that does not
  /// exist) or errc::communication (the device failed).
  result<void> check(int code, std::string_view operation, device where = {device_type::cuda, -1}) const;

  /// Devices of this machine. \errors those of `check`
  result<std::int32_t> device_count() const;
  /// The device with its index: -1 is the one that is current on the calling thread.
  /// \errors errc::invalid_argument when it is no CUDA device or there is none of that index
  result<device> resolve(device where) const;

 private:
  shared_library library_;
  std::shared_ptr<const functions> functions_;
};

/// A device is the calling thread's current one from here to the end of the scope.
class current_device {
 public:
  /// Not to be asked for anything when `outcome` is an error. Precondition: `where` has an index.
  current_device(const runtime& cuda, device where);
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;
  ~current_device();
  const result<void>& outcome() const { return outcome_; }

 private:
  const runtime& cuda_;
  int before_ = -1;  // to go back to; -1: nothing changed
  result<void> outcome_;
};

}  // namespace shardmesh::cuda
