/* SPDX-License-Identifier: Apache-2.0
 * The kernels of CUDA memory as a library of C functions: libshardmesh_cuda_kernels. The folder cuda_kernels builds it
 * where nvcc is found. The room cuda, which is built without CUDA, loads it at run time. The meaning of the items is in
 * kernels/batch.hpp.
 */
#ifndef SHARDMESH_KERNELS_CUDA_KERNELS_H
#define SHARDMESH_KERNELS_CUDA_KERNELS_H
#include <stddef.h>

/* The version of these functions and of batch_item, which the library's soname carries. A library of another version is
 * refused. */
#define SHARDMESH_CUDA_KERNELS_VERSION 1
/* A result of `create` besides the errors of CUDA, which are greater than 0. */
#define SHARDMESH_CUDA_KERNELS_NO_KERNEL (-1)

#ifdef __cplusplus
extern "C" {
#endif

/* SHARDMESH_CUDA_KERNELS_VERSION, and sizeof(shardmesh::batch_item), as of the build of the library. */
int shardmesh_cuda_kernels_version(void);
size_t shardmesh_cuda_kernels_item_bytes(void);
/* Describes the build: "shardmesh 0.1.0, CUDA 13.0, architectures 75 80 90". The text lives as long as the
 * library. */
const char* shardmesh_cuda_kernels_build(void);

/* Makes a table on a device of `count` shardmesh::batch_item at `items`, and uploads it; when it returns, the items are
 * no longer needed and launches on any stream may follow. The device is the calling thread's current one afterwards.
 * Returns 0; an error of CUDA; or NO_KERNEL with the number of the first item that the library cannot handle in
 * `refused`, and no table. */
int shardmesh_cuda_table_create(const void* items, size_t count, int device, size_t* refused, void** table);

/* Enqueues the whole table on `stream` (a cudaStream_t; null: the default stream of the current device): as many
 * launches as it has phases, no allocation, no upload of the table. `to` and `from` are addresses of slots; the arrays
 * are not needed after the call. May be called from several threads. Returns 0 or an error of CUDA. */
int shardmesh_cuda_table_launch(void* table, unsigned char* const* to, size_t to_count,
                                const unsigned char* const* from, size_t from_count, void* stream);

/* Frees the table once all of its launches are done. */
void shardmesh_cuda_table_destroy(void* table);

#ifdef __cplusplus
}
#endif
#endif
