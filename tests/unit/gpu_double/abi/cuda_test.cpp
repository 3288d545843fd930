// SPDX-License-Identifier: Apache-2.0
// Checks the double's declarations of libcudart against the real header. Compiling is the test.
#include <catch2/catch_test_macros.hpp>

#include <cuda_runtime_api.h>

#include <same_abi.hpp>

#define GPU_DOUBLE_TYPES_ONLY
#include "gpu_double/cuda_abi.h"

#define CUDA_DOUBLE_FUNCTION(result, name, parameters) static_assert(same_abi<result(*) parameters, decltype(&::name)>);
#include "gpu_double/cuda_functions.inc"

using namespace gpu_double;

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(cuda_success, cudaSuccess);
SAME(cuda_invalid_value, cudaErrorInvalidValue);
SAME(cuda_no_memory, cudaErrorMemoryAllocation);
SAME(cuda_invalid_memcpy_direction, cudaErrorInvalidMemcpyDirection);
SAME(cuda_no_device, cudaErrorNoDevice);
SAME(cuda_invalid_device, cudaErrorInvalidDevice);
SAME(cuda_invalid_kernel_image, cudaErrorInvalidKernelImage);
SAME(cuda_invalid_handle, cudaErrorInvalidResourceHandle);
SAME(cuda_symbol_not_found, cudaErrorSymbolNotFound);
SAME(cuda_not_ready, cudaErrorNotReady);
SAME(cuda_illegal_address, cudaErrorIllegalAddress);
SAME(cuda_peer_access_already_enabled, cudaErrorPeerAccessAlreadyEnabled);
SAME(cuda_peer_access_not_enabled, cudaErrorPeerAccessNotEnabled);
SAME(cuda_host_memory_already_registered, cudaErrorHostMemoryAlreadyRegistered);
SAME(cuda_host_memory_not_registered, cudaErrorHostMemoryNotRegistered);
SAME(cuda_launch_failure, cudaErrorLaunchFailure);
SAME(cuda_not_permitted, cudaErrorNotPermitted);
SAME(cuda_not_supported, cudaErrorNotSupported);
SAME(host_to_host, cudaMemcpyHostToHost);
SAME(host_to_device, cudaMemcpyHostToDevice);
SAME(device_to_host, cudaMemcpyDeviceToHost);
SAME(device_to_device, cudaMemcpyDeviceToDevice);
SAME(by_address, cudaMemcpyDefault);
SAME(memory_unregistered, cudaMemoryTypeUnregistered);
SAME(memory_host, cudaMemoryTypeHost);
SAME(memory_device, cudaMemoryTypeDevice);
SAME(stream_non_blocking, cudaStreamNonBlocking);
SAME(event_disable_timing, cudaEventDisableTiming);
SAME(sizeof(cuda_pointer_attributes), sizeof(cudaPointerAttributes));
SAME(offsetof(cuda_pointer_attributes, device), offsetof(cudaPointerAttributes, device));
SAME(offsetof(cuda_pointer_attributes, device_pointer), offsetof(cudaPointerAttributes, devicePointer));
SAME(offsetof(cuda_pointer_attributes, host_pointer), offsetof(cudaPointerAttributes, hostPointer));
SAME(offsetof(cuda_device_properties, total_memory), offsetof(cudaDeviceProp, totalGlobalMem));
// The attributes of devices and pools that the double looks up by number.
SAME(115, cudaDevAttrMemoryPoolsSupported);
SAME(75, cudaDevAttrComputeCapabilityMajor);
SAME(16, cudaDevAttrMultiProcessorCount);
SAME(4, cudaMemPoolAttrReleaseThreshold);

TEST_CASE("the double declares cuda as the real header does") {
  SUCCEED("compiled with CUDA " << CUDART_VERSION);
}
