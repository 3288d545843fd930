// SPDX-License-Identifier: Apache-2.0
// The mark of kernel functions: what a device runs as well as the host. Plain C++17: nvcc, hipcc and Clang read it.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define SHARDMESH_KERNEL_FUNCTION __host__ __device__
#else
#define SHARDMESH_KERNEL_FUNCTION
#endif

// Defined while code for a device is made: what a host alone has (cache hints of x86) is left out then.
#if defined(__CUDA_ARCH__) || (defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__)
#define SHARDMESH_ON_DEVICE 1
#endif
