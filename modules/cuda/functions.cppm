// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that this library calls, as a table that is filled at run time. They are declared
// here instead of included, so that one build runs with and without a GPU; tests/unit/cuda compares them with the real
// headers. The partition runtime loads them.
export module shardmesh.cuda:functions;

import shardmesh.std;

export namespace shardmesh::cuda {

/// The values of CUDA's enums and flags that are used here. In the functions below, enums are `int`.
enum : int {
  success = 0,
  error_invalid_value = 1,
  error_memory_allocation = 2,
  error_initialization = 3,
  error_insufficient_driver = 35,
  error_no_device = 100,
  error_invalid_device = 101,
  error_not_ready = 600,
  error_not_supported = 801,
  copy_default = 4,              // cudaMemcpyDefault: the direction follows from the addresses
  attribute_max_pitch = 11,      // cudaDevAttrMaxPitch
  attribute_compute_major = 75,  // cudaDevAttrComputeCapabilityMajor
  attribute_compute_minor = 76,  // cudaDevAttrComputeCapabilityMinor
  attribute_memory_pools = 115,  // cudaDevAttrMemoryPoolsSupported
  memory_type_unregistered = 0,
  memory_type_host = 1,
  memory_type_device = 2,
  memory_type_managed = 3,
  pool_release_threshold = 4,  // cudaMemPoolAttrReleaseThreshold
  location_device = 1,         // cudaMemLocationTypeDevice
  access_read_write = 3,       // cudaMemAccessFlagsProtReadWrite
};
enum : unsigned {
  stream_non_blocking = 1,   // cudaStreamNonBlocking: does not wait for the default stream
  event_disable_timing = 2,  // cudaEventDisableTiming
  host_alloc_portable = 1,   // cudaHostAllocPortable: pinned for all devices
};

/// cudaPointerAttributes of CUDA 13. In CUDA 12 the last member is missing.
struct pointer_attributes {
  int type = 0;
  int device = 0;
  void* device_pointer = nullptr;
  void* host_pointer = nullptr;
  long reserved[8] = {};
};

/// cudaMemAccessDesc: a device's access to the memory of a pool.
struct memory_access {
  int location_type = location_device;
  int device = 0;
  int flags = access_read_write;
};

/// The beginning of cudaDeviceProp, which is the same in all versions, and room for the rest.
struct device_properties {
  char name[256] = {};
  char identifiers[28] = {};
  std::size_t total_memory = 0;
  char others[4096] = {};
};

/// dim3: the blocks of a grid, or the threads of a block.
struct grid_size {
  unsigned x = 1, y = 1, z = 1;
};

/// One pointer per function of the library. Streams, events, pools, libraries, and kernels are opaque pointers. In a
/// loaded table only the last ten may be null; `library_load_data` is null if one
/// of the last four is missing, as before CUDA 12.8.
struct functions {
  int (*runtime_get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  int (*get_last_error)() = nullptr;

  int (*get_device_count)(int* count) = nullptr;
  int (*get_device)(int* index) = nullptr;
  int (*set_device)(int index) = nullptr;
  int (*device_get_attribute)(int* value, int attribute, int index) = nullptr;
  int (*pointer_get_attributes)(pointer_attributes* attributes, const void* address) = nullptr;

  int (*malloc)(void** address, std::size_t size) = nullptr;
  int (*free)(void* address) = nullptr;
  int (*malloc_async)(void** address, std::size_t size, void* stream) = nullptr;
  int (*free_async)(void* address, void* stream) = nullptr;
  int (*host_alloc)(void** address, std::size_t size, unsigned flags) = nullptr;
  int (*free_host)(void* address) = nullptr;

  int (*memcpy_async)(void* to, const void* from, std::size_t size, int kind, void* stream) = nullptr;
  int (*memcpy_2d_async)(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, int kind, void* stream) = nullptr;
  int (*launch_host_func)(void* stream, void (*function)(void*), void* argument) = nullptr;

  int (*stream_create_with_flags)(void** stream, unsigned flags) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*stream_synchronize)(void* stream) = nullptr;
  int (*stream_query)(void* stream) = nullptr;
  int (*stream_wait_event)(void* stream, void* event, unsigned flags) = nullptr;

  int (*event_create_with_flags)(void** event, unsigned flags) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*event_synchronize)(void* event) = nullptr;

  int (*device_can_access_peer)(int* can, int index, int peer) = nullptr;
  int (*device_get_default_mem_pool)(void** pool, int index) = nullptr;
  int (*mem_pool_set_attribute)(void* pool, int attribute, void* value) = nullptr;
  int (*mem_pool_set_access)(void* pool, const memory_access* accesses, std::size_t count) = nullptr;
  int (*driver_get_version)(int* version) = nullptr;
  int (*get_device_properties)(device_properties* properties, int index) = nullptr;

  int (*library_load_data)(void** library, const void* code, void* jit_options, void** jit_values, unsigned jit_count,
                           void* options, void** values, unsigned count) = nullptr;
  int (*library_get_kernel)(void** kernel, void* library, const char* name) = nullptr;
  int (*library_unload)(void* library) = nullptr;
  int (*launch_kernel)(const void* kernel, grid_size grid, grid_size block, void** arguments, std::size_t shared_bytes,
                       void* stream) = nullptr;
};

}  // namespace shardmesh::cuda
