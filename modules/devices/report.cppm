// SPDX-License-Identifier: Apache-2.0
// device_report: the GPUs and their libraries that were found, and a remedy for each library that was not. Memory of
// GPUs is in rooms cuda and kokkos, and communication between them in room nccl.
export module shardmesh.devices:report;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A GPU that the CUDA runtime lists.
struct gpu_info {
  /// The device of tensors in its memory: `cuda:0`.
  device where{};
  /// The name that the runtime gives it: "NVIDIA H100 80GB HBM3". Empty if the runtime gives none.
  std::string name{};
  /// "9.0".
  std::string compute_capability{};
  /// Its whole memory, in bytes; 0 if unknown.
  std::int64_t memory_bytes = 0;
  /// The reason why the library of kernels cannot run on it: it has no code for the GPU's architecture. Empty if it
  /// can, or if there is none.
  std::string problem{};
  friend bool operator==(const gpu_info&, const gpu_info&) = default;
};

/// A library for GPUs: its version and file, or else the reason why shardmesh cannot use it, and a remedy.
struct gpu_library {
  /// `driver`, `cuda_runtime`, `nccl`, `cuda_kernels`, `nvrtc`, or `kokkos`.
  std::string name{};
  bool is_usable = false;
  std::string version{};
  /// The path of the loaded file; empty if none was loaded.
  std::string file{};
  /// The reason why it is not usable; empty if it is.
  std::string problem{};
  /// The instruction that solves the problem; empty if there is none.
  std::string remedy{};
  friend bool operator==(const gpu_library&, const gpu_library&) = default;
};

/// The result of `devices`.
struct device_report {
  std::vector<gpu_info> gpus{};
  /// The reason why `gpus` is empty; empty if it is not.
  std::string problem{};
  /// One entry for each name of `gpu_library`, in that order.
  std::vector<gpu_library> libraries{};
  /// The source of the kernels that a `cuda_scope` uses: `library`, `nvrtc` (compiled when they are first needed), or
  /// `none`.
  std::string kernels{};
  /// The folder of the kernels that NVRTC compiled, and the reason why it is not used; empty if it is.
  std::string kernel_cache{}, kernel_cache_problem{};
  friend bool operator==(const device_report&, const device_report&) = default;
};

/// Paths of the libraries, as in `cuda_options` and `nccl_options`: an empty path means the usual search.
struct device_options {
  std::string cudart{};
  std::string nccl{};
  std::string kernels{};
  std::string nvrtc{};
};

/// Looks for the GPUs of this machine and for the libraries that shardmesh uses for them. A missing library is part of
/// the report, not a failure. It loads the libraries, allocates nothing on a GPU, compiles nothing, and needs no rank.
/// Cost: the start of the CUDA runtime, at the first call of a process.
device_report devices(const device_options& options = {});

/// Formats a report for people: a line for each GPU and library, and a line for each remedy. Names and paths are
/// escaped.
std::string to_string(const device_report& report);

}  // namespace shardmesh
