// SPDX-License-Identifier: Apache-2.0
// runtime: the CUDA runtime library of this process, loaded when it is needed, and the translation of its errors into
// ours. Memory is in backend, and streams are in stream.
export module shardmesh.cuda:runtime;

import shardmesh.std;
import shardmesh.core;
import :functions;
import :shared_library;

export namespace shardmesh::cuda {

/// A loaded CUDA runtime. Cheap to copy; immutable; thread-safe. Loading it does not touch a GPU: without one, the
/// first call that needs it returns an error.
class runtime {
 public:
  /// Loads the CUDA runtime.
  /// \param path  the library's path; empty: the path in SHARDMESH_CUDART, or else libcudart.so.13, .so.12, or .so
  /// \errors errc::unsupported: the library cannot be loaded or lacks a function
  static result<runtime> load(const std::string& path = {});

  const functions& call() const { return *functions_; }
  /// Returns the path or name of the library.
  const std::string& library() const { return library_.name(); }
  /// Returns the path of the loaded file.
  std::string file() const { return library_.file(); }

  /// Turns the code of a CUDA function into a result. An error names the operation and the device, and quotes the
  /// library's text. Its code is errc::no_memory, errc::unsupported (no GPU, no driver), errc::invalid_argument (an
  /// invalid value or device), or errc::communication (the device failed).
  result<void> check(int code, std::string_view operation, device where = {device_type::cuda, -1}) const;

  /// Returns the number of devices of this machine. \errors the errors of `check`
  result<std::int32_t> device_count() const;
  /// Returns the device with its index; index -1 means the calling thread's current device.
  /// \errors errc::invalid_argument when it is not a CUDA device, or none has that index
  result<device> resolve(device where) const;
  /// Returns the device's architecture as CUDA's tools number it: 90 is compute capability 9.0. \errors those of
  /// `check`
  result<int> architecture(device where) const;

 private:
  shared_library library_;
  std::shared_ptr<const functions> functions_;
};

/// A scope in which a device is the calling thread's current device.
class current_device {
 public:
  /// Makes `where` the current device. Do not use the device when `outcome` is an error. Precondition: `where` has an
  /// index.
  current_device(const runtime& cuda, device where);
  current_device(const current_device&) = delete;
  current_device& operator=(const current_device&) = delete;
  ~current_device();
  const result<void>& outcome() const { return outcome_; }

 private:
  const runtime& cuda_;
  int before_ = -1;  // the previous device, to be restored; -1: unchanged
  result<void> outcome_;
};

}  // namespace shardmesh::cuda
