// SPDX-License-Identifier: Apache-2.0
// The macro that marks kernel functions, which run on a device and on the host. Plain C++17, for nvcc, hipcc, and
// Clang.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define SHARDMESH_KERNEL_FUNCTION __host__ __device__
#else
#define SHARDMESH_KERNEL_FUNCTION
#endif

// Defined while compiling for a device; host-only code (cache hints of x86) is then left out.
#if defined(__CUDA_ARCH__) || (defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__)
#define SHARDMESH_ON_DEVICE 1
#endif
