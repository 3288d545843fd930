// SPDX-License-Identifier: Apache-2.0
// nvrtc: CUDA's compiler as a library, and the search for it. kernel_compiler compiles the kernels with it where the
// library of kernels is missing.
export module shardmesh.cuda:nvrtc;

import shardmesh.std;
import shardmesh.core;
import :runtime;
import :shared_library;

export namespace shardmesh::cuda {

/// The functions of NVRTC that are used here. Programs are opaque pointers; a code of 0 means success.
struct nvrtc_functions {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  int (*get_num_supported_archs)(int* count) = nullptr;
  int (*get_supported_archs)(int* architectures) = nullptr;
  int (*create_program)(void** program, const char* source, const char* name, int header_count,
                        const char* const* headers, const char* const* header_names) = nullptr;
  int (*destroy_program)(void** program) = nullptr;
  int (*compile_program)(void* program, int option_count, const char* const* options) = nullptr;
  int (*get_program_log_size)(void* program, std::size_t* size) = nullptr;
  int (*get_program_log)(void* program, char* log) = nullptr;
  int (*get_cubin_size)(void* program, std::size_t* size) = nullptr;
  int (*get_cubin)(void* program, char* cubin) = nullptr;
  int (*get_ptx_size)(void* program, std::size_t* size) = nullptr;
  int (*get_ptx)(void* program, char* ptx) = nullptr;
};

/// A loaded NVRTC. Immutable; thread-safe. It needs no GPU.
struct nvrtc {
  shared_library library;
  nvrtc_functions call;
  int major = 0, minor = 0;
  /// The architectures that it compiles for, in ascending order: 75, 80, ...
  std::vector<int> architectures;

  /// Loads the NVRTC at `path`. It is not checked against a CUDA runtime.
  /// \errors errc::unsupported: it cannot be loaded, or is no NVRTC
  static result<std::shared_ptr<const nvrtc>> open(const std::string& path);
  /// Loads the NVRTC at `path`. If `path` is empty, loads the one at the path in SHARDMESH_NVRTC; if that is not set,
  /// the first of `places` that can be used. The path `none` means that no NVRTC is used.
  /// \param cuda  the runtime that will load the compiled kernels
  /// \returns null when no NVRTC is used, or none was found
  /// \errors errc::unsupported: the named library cannot be used (`open`), the driver is of an older major version, or
  ///         the runtime cannot load compiled kernels (before CUDA 12.8)
  static result<std::shared_ptr<const nvrtc>> find(const runtime& cuda, const std::string& path = {});

  /// Returns the path that `find` uses for this option: the option itself, or SHARDMESH_NVRTC; empty if neither is set.
  static std::string named(const std::string& path);
  /// Lists the files that `find` tries if no path is given, in order, with the runtime's own major version first:
  /// beside the CUDA runtime, and where NVIDIA's wheels have it relative to that; on the loader's path; in the wheels
  /// that are installed beside the Python package shardmesh; in /usr/local/cuda.
  static std::vector<std::string> places(const runtime& cuda);
};

}  // namespace shardmesh::cuda
