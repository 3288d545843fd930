/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a checkpoint's tensors in place in its files, without a copy. */
#ifndef SHARDMESH_C_API_MAPPING_H
#define SHARDMESH_C_API_MAPPING_H

#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_map_options {
  size_t struct_size;
  const int64_t* offsets; /* of a box, with its `sizes`; `rank` numbers each; null: the whole tensor */
  const int64_t* sizes;
  int64_t rank;
  int32_t allow_unaligned; /* also maps tensors whose first byte is not aligned for the element type: read elements
                              with memcpy, not through a pointer of that type */
  int32_t reserved;        /* 0 */
} shardmesh_map_options;

typedef struct shardmesh_mapped shardmesh_mapped;

/* Maps the tensor `key`, or a box of it. No byte is read before it is accessed, and checksums are not compared. Each
 * file is mapped once, and stays mapped until the checkpoint is closed and the last of its mapped tensors is freed.
 * SHARDMESH_UNSUPPORTED if the tensor's plain bytes are not in one file: compressed, in several chunks, of the other
 * byte order, or dequantized. SHARDMESH_UNALIGNED without `allow_unaligned`. `key_size` 0: the key ends at its first
 * 0. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_map_tensor(shardmesh_checkpoint* checkpoint, const char* key,
                                                         size_t key_size, const shardmesh_map_options* options,
                                                         shardmesh_mapped** mapped, shardmesh_error** error);

typedef struct shardmesh_mapped_view {
  size_t struct_size;
  const void* data;  /* the first element; read-only memory, valid until `shardmesh_mapped_free` */
  int64_t byte_size; /* from the first element to the last, gaps included */
  int64_t rank;
  int64_t sizes[SHARDMESH_MAX_RANK];   /* entries beyond `rank` are 0 */
  int64_t strides[SHARDMESH_MAX_RANK]; /* as in the file */
  shardmesh_dtype dtype;
  int32_t reserved;
} shardmesh_mapped_view;

/* Fills `view`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapped_describe(const shardmesh_mapped* mapped,
                                                              shardmesh_mapped_view* view, shardmesh_error** error);
/* SHARDMESH_IO if the file became shorter. Access to the lost part raises SIGBUS, which no library can turn into an
 * error. Removing or replacing the file is harmless. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapped_check(const shardmesh_mapped* mapped, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_mapped_free(shardmesh_mapped* mapped);

SHARDMESH_C_END

#endif
