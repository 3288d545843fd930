// SPDX-License-Identifier: Apache-2.0
// The part of libcudart's C ABI (CUDA 13) that the double has: handles are void*, enumerations int. A test compares all
// of it with the real header. Define CUDA_DOUBLE_FUNCTION(result, name, (parameters)) and include cuda_functions.inc
// for the list. The functions are implemented in cudart_*.cpp.
#pragma once
#include <cstddef>

namespace gpu_double {

inline constexpr int cuda_version = 13000;

enum cuda_error : int {
  cuda_success = 0,
  cuda_invalid_value = 1,
  cuda_no_memory = 2,
  cuda_invalid_memcpy_direction = 21,
  cuda_no_device = 100,
  cuda_invalid_device = 101,
  cuda_invalid_kernel_image = 200,
  cuda_invalid_handle = 400,
  cuda_symbol_not_found = 500,
  cuda_not_ready = 600,
  cuda_illegal_address = 700,
  cuda_peer_access_already_enabled = 704,
  cuda_peer_access_not_enabled = 705,
  cuda_host_memory_already_registered = 712,
  cuda_host_memory_not_registered = 713,
  cuda_launch_failure = 719,
  cuda_not_permitted = 800,
  cuda_not_supported = 801,
};

enum cuda_memcpy_kind : int {
  host_to_host = 0,
  host_to_device = 1,
  device_to_host = 2,
  device_to_device = 3,
  by_address = 4
};
enum cuda_memory_type : int { memory_unregistered = 0, memory_host = 1, memory_device = 2 };
enum cuda_flags : unsigned { stream_non_blocking = 1, event_disable_timing = 2 };

struct cuda_pointer_attributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

// The beginning of cudaDeviceProp; the double writes no more of the caller's structure.
struct cuda_device_properties {
  char name[256];
  char identifiers[28];
  std::size_t total_memory;
};

using cuda_host_function = void (*)(void*);

// dim3
struct cuda_grid_size {
  unsigned int x, y, z;
};

}  // namespace gpu_double

#ifndef GPU_DOUBLE_TYPES_ONLY
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result name parameters;
#include "cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
#endif
