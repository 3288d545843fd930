/* SPDX-License-Identifier: Apache-2.0
 * Asks the installed library of kernels for its version. It needs no GPU and no driver. */
#include <shardmesh/kernels/cuda_kernels.h>

#include <stdio.h>

int main(void) {
  if (shardmesh_cuda_kernels_version() != SHARDMESH_CUDA_KERNELS_VERSION) return 1;
  printf("kernels of version %d: %s\n", shardmesh_cuda_kernels_version(), shardmesh_cuda_kernels_build());
  return 0;
}
