// SPDX-License-Identifier: Apache-2.0
// kernel_library: the library of CUDA kernels, and the places that are searched for it. kernels/cuda_kernels.h declares
// its functions; launcher runs batches with them.
export module shardmesh.cuda:kernel_library;

import shardmesh.std;
import shardmesh.core;
import :shared_library;

export namespace shardmesh::cuda {

/// The loaded library of CUDA kernels, of the version that this build uses.
struct kernel_library {
  shared_library library;
  /// The library's description of its build: "shardmesh 0.1.0, CUDA 13.0, architectures 75 80 90".
  std::string build;
  /// The architectures of `build`; empty if it names none.
  std::vector<int> architectures;

  /// Returns whether the library has code for a device of this architecture (`runtime::architecture`): machine code of
  /// the same major version that is no newer, or PTX, which it has of its newest architecture. True if `architectures`
  /// is empty.
  bool runs_on(int architecture) const;

  /// Loads the library at `path`. If `path` is empty, loads the one at the path in SHARDMESH_CUDA_KERNELS; if that is
  /// not set, the first that exists of `places`. The path `none` means that no kernels are used, and `nvrtc` that NVRTC
  /// compiles them even if there is a library.
  /// \returns null when no library is used, or none was found
  /// \errors errc::unsupported: the library cannot be loaded, is not a library of kernels, or has another version; the
  ///         error names both versions and the remedy
  static result<std::shared_ptr<const kernel_library>> find(const std::string& path = {});

  /// Returns the path that `find` uses for this option: the option itself, or SHARDMESH_CUDA_KERNELS; empty if neither
  /// is set.
  static std::string named(const std::string& path);
  /// Lists the files that `find` looks for without a path, in order: beside the program or shared library that contains
  /// this code; above a program's folder `bin`, and in `lib` beside it; in the folder into which this build installs
  /// libraries; and, as names without a folder, on the loader's path.
  static std::vector<std::string> places();
};

}  // namespace shardmesh::cuda
