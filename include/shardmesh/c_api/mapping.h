/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's tensors where they lie in its files, without a copy. */
#ifndef SHARDMESH_C_API_MAPPING_H
#define SHARDMESH_C_API_MAPPING_H

#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_map_options {
  size_t struct_size;
  const int64_t* offsets; /* of a box, with its `sizes`, of `rank` numbers each; null: the whole tensor */
  const int64_t* sizes;
  int64_t rank;
  int32_t allow_unaligned; /* also where the first byte is no multiple of what the element type needs: such elements
                              are read with memcpy, not through a pointer of their type */
  int32_t reserved;        /* 0 */
} shardmesh_map_options;

typedef struct shardmesh_mapped shardmesh_mapped;

/* The tensor `key`, or a box of it. Nothing is read before it is touched, nor held against checksums. Each file is
 * mapped once, and stays so while the checkpoint is open or something mapped of it lives, which may be longer.
 * SHARDMESH_UNSUPPORTED where the bytes do not lie in one file as they are: compressed, in several chunks, of the other
 * byte order, dequantized; SHARDMESH_UNALIGNED. `key_size` 0: the key ends at its first 0. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_map_tensor(shardmesh_checkpoint* checkpoint, const char* key,
                                                         size_t key_size, const shardmesh_map_options* options,
                                                         shardmesh_mapped** mapped, shardmesh_error** error);

typedef struct shardmesh_mapped_view {
  size_t struct_size;
  const void* data;  /* the first element; read-only memory, valid until `shardmesh_mapped_free` */
  int64_t byte_size; /* from the first element to the last, whatever lies between */
  int64_t rank;
  int64_t sizes[SHARDMESH_MAX_RANK];   /* entries beyond `rank` are 0 */
  int64_t strides[SHARDMESH_MAX_RANK]; /* those of the file */
  shardmesh_dtype dtype;
  int32_t reserved;
} shardmesh_mapped_view;

SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapped_describe(const shardmesh_mapped* mapped,
                                                              shardmesh_mapped_view* view, shardmesh_error** error);
/* SHARDMESH_IO when the file became shorter than it was. To touch what it lost raises SIGBUS, which no library can turn
 * into an error. A file that was removed or replaced harms nothing. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_mapped_check(const shardmesh_mapped* mapped, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_mapped_free(shardmesh_mapped* mapped);

SHARDMESH_C_END

#endif
