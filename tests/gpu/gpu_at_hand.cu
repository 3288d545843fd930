// SPDX-License-Identifier: Apache-2.0
// Prints which GPU is present; exits with 1 and the reason if there is none.
#include <cstdio>

int main() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    std::printf("no GPU: cudaGetDeviceCount: %s\n", cudaGetErrorString(error));
    return 1;
  }
  cudaDeviceProp device{};
  cudaGetDeviceProperties(&device, 0);
  std::printf("%d GPU(s): %s, sm_%d%d\n", count, device.name, device.major, device.minor);
  return 0;
}
