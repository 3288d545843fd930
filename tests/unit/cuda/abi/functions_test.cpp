// SPDX-License-Identifier: Apache-2.0
// Checks our declarations of the CUDA runtime against its header. Compiling is the test.
#include <cuda_runtime_api.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <same_abi.hpp>
import shardmesh.cuda;

using shardmesh::cuda::functions;
namespace cuda = shardmesh::cuda;

#define SAME(ours, theirs) static_assert(same_abi<decltype(functions::ours), decltype(&theirs)>)
SAME(runtime_get_version, cudaRuntimeGetVersion);
SAME(get_error_string, cudaGetErrorString);
SAME(get_last_error, cudaGetLastError);
SAME(get_device_count, cudaGetDeviceCount);
SAME(get_device, cudaGetDevice);
SAME(set_device, cudaSetDevice);
SAME(device_get_attribute, cudaDeviceGetAttribute);
SAME(pointer_get_attributes, cudaPointerGetAttributes);
SAME(malloc, cudaMalloc);
SAME(free, cudaFree);
SAME(malloc_async, cudaMallocAsync);
SAME(free_async, cudaFreeAsync);
SAME(host_alloc, cudaHostAlloc);
SAME(free_host, cudaFreeHost);
SAME(memcpy_async, cudaMemcpyAsync);
SAME(memcpy_2d_async, cudaMemcpy2DAsync);
SAME(launch_host_func, cudaLaunchHostFunc);
SAME(stream_create_with_flags, cudaStreamCreateWithFlags);
SAME(stream_destroy, cudaStreamDestroy);
SAME(stream_synchronize, cudaStreamSynchronize);
SAME(stream_query, cudaStreamQuery);
SAME(stream_wait_event, cudaStreamWaitEvent);
SAME(event_create_with_flags, cudaEventCreateWithFlags);
SAME(event_destroy, cudaEventDestroy);
SAME(event_record, cudaEventRecord);
SAME(event_query, cudaEventQuery);
SAME(event_synchronize, cudaEventSynchronize);
SAME(device_can_access_peer, cudaDeviceCanAccessPeer);
SAME(device_get_default_mem_pool, cudaDeviceGetDefaultMemPool);
SAME(mem_pool_set_attribute, cudaMemPoolSetAttribute);
SAME(mem_pool_set_access, cudaMemPoolSetAccess);
SAME(driver_get_version, cudaDriverGetVersion);
SAME(get_device_properties, cudaGetDeviceProperties);
SAME(launch_kernel, cudaLaunchKernel);
#if CUDART_VERSION >= 12080
SAME(library_load_data, cudaLibraryLoadData);
SAME(library_get_kernel, cudaLibraryGetKernel);
SAME(library_unload, cudaLibraryUnload);
#endif

static_assert(int{cuda::success} == cudaSuccess);
static_assert(int{cuda::error_invalid_value} == cudaErrorInvalidValue);
static_assert(int{cuda::error_memory_allocation} == cudaErrorMemoryAllocation);
static_assert(int{cuda::error_initialization} == cudaErrorInitializationError);
static_assert(int{cuda::error_insufficient_driver} == cudaErrorInsufficientDriver);
static_assert(int{cuda::error_no_device} == cudaErrorNoDevice);
static_assert(int{cuda::error_invalid_device} == cudaErrorInvalidDevice);
static_assert(int{cuda::error_not_ready} == cudaErrorNotReady);
static_assert(int{cuda::error_not_supported} == cudaErrorNotSupported);
static_assert(int{cuda::copy_default} == cudaMemcpyDefault);
static_assert(int{cuda::attribute_max_pitch} == cudaDevAttrMaxPitch);
static_assert(int{cuda::attribute_compute_major} == cudaDevAttrComputeCapabilityMajor);
static_assert(int{cuda::attribute_compute_minor} == cudaDevAttrComputeCapabilityMinor);
static_assert(int{cuda::attribute_memory_pools} == cudaDevAttrMemoryPoolsSupported);
static_assert(int{cuda::memory_type_unregistered} == cudaMemoryTypeUnregistered);
static_assert(int{cuda::memory_type_host} == cudaMemoryTypeHost);
static_assert(int{cuda::memory_type_device} == cudaMemoryTypeDevice);
static_assert(int{cuda::memory_type_managed} == cudaMemoryTypeManaged);
static_assert(int{cuda::pool_release_threshold} == cudaMemPoolAttrReleaseThreshold);
static_assert(int{cuda::location_device} == cudaMemLocationTypeDevice);
static_assert(int{cuda::access_read_write} == cudaMemAccessFlagsProtReadWrite);
static_assert(unsigned{cuda::stream_non_blocking} == cudaStreamNonBlocking);
static_assert(unsigned{cuda::event_disable_timing} == cudaEventDisableTiming);
static_assert(unsigned{cuda::host_alloc_portable} == cudaHostAllocPortable);

static_assert(sizeof(cuda::pointer_attributes) >= sizeof(cudaPointerAttributes));
static_assert(offsetof(cuda::pointer_attributes, type) == offsetof(cudaPointerAttributes, type));
static_assert(offsetof(cuda::pointer_attributes, device) == offsetof(cudaPointerAttributes, device));
static_assert(offsetof(cuda::pointer_attributes, device_pointer) == offsetof(cudaPointerAttributes, devicePointer));
static_assert(offsetof(cuda::pointer_attributes, host_pointer) == offsetof(cudaPointerAttributes, hostPointer));
static_assert(sizeof(cuda::device_properties) >= sizeof(cudaDeviceProp));
static_assert(offsetof(cuda::device_properties, name) == offsetof(cudaDeviceProp, name));
static_assert(sizeof(cuda::device_properties::name) == sizeof(cudaDeviceProp::name));
static_assert(offsetof(cuda::device_properties, total_memory) == offsetof(cudaDeviceProp, totalGlobalMem));
static_assert(sizeof(cuda::memory_access) == sizeof(cudaMemAccessDesc));
static_assert(offsetof(cuda::memory_access, location_type) == offsetof(cudaMemAccessDesc, location.type));
static_assert(offsetof(cuda::memory_access, device) == offsetof(cudaMemAccessDesc, location.id));
static_assert(offsetof(cuda::memory_access, flags) == offsetof(cudaMemAccessDesc, flags));

TEST_CASE("our declarations of the CUDA runtime are those of its header") {
  SUCCEED("compiled against CUDA " << CUDART_VERSION);
}
