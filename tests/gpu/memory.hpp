// SPDX-License-Identifier: Apache-2.0
// Memory of the device under test, with as few functions as the kernels' tests need: CUDA's, or the host's where
// kernels are emulated (SHARDMESH_EMULATED).
#pragma once
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifndef SHARDMESH_EMULATED
#include <cuda_runtime_api.h>

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
inline unsigned char* allocate(std::size_t bytes) {
  void* made = nullptr;
  must(cudaMalloc(&made, bytes), "cudaMalloc");
  return static_cast<unsigned char*>(made);
}
inline void release(unsigned char* memory) {
  must(cudaFree(memory), "cudaFree");
}
inline void to_device(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}
inline void from_device(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}
inline void synchronize() {
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
#else
inline unsigned char* allocate(std::size_t bytes) {
  return static_cast<unsigned char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
}
inline void release(unsigned char* memory) {
  std::free(memory);
}
inline void to_device(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void from_device(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
inline void synchronize() {}
#endif
