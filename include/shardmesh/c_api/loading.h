/* SPDX-License-Identifier: Apache-2.0 */
/* Loads boxes of a checkpoint's tensors into the caller's memory, and objects as JSON. */
#ifndef SHARDMESH_C_API_LOADING_H
#define SHARDMESH_C_API_LOADING_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

/* Loads a box of the tensor `key` into `to`: the box at `offsets` with the sizes of `to`. The element type of `to`
 * may differ from the stored one. `offsets` null: the whole tensor, whose shape `to` has. `key_size` 0: the key ends
 * at its first 0. */
typedef struct shardmesh_load_request {
  const char* key;
  size_t key_size;
  const int64_t* offsets;
  shardmesh_tensor to;
} shardmesh_load_request;

typedef struct shardmesh_load_options {
  size_t struct_size;
  const shardmesh_call* call;
  int32_t threads;         /* 0: all cores */
  int32_t allow_narrowing; /* allows casts that lose values */
  int32_t check;           /* compares checksums of the data read, which is then read twice */
  /* Boxes may reach beyond the stored tensor, and memory for a whole tensor may have any sizes of the same rank.
   * Elements keep their indices; those that are not stored are loaded as zeros. */
  int32_t allow_shape_mismatch;
} shardmesh_load_options;

/* Fills every request. Reads only the bytes that are needed; requests that overlap share one read. After a failure,
 * memory that the load had not reached is unspecified. `bytes_read` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_load(shardmesh_checkpoint* checkpoint,
                                                   const shardmesh_load_request* requests, size_t request_count,
                                                   const shardmesh_load_options* options, int64_t* bytes_read,
                                                   shardmesh_error** error);

/* Loads an object as {"kind":..,"type":..,"value":..}, with the tags of docs/formats.md. Nothing in the file is
 * executed. Free the text with `shardmesh_text_free`. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_load_object(shardmesh_checkpoint* checkpoint, size_t index,
                                                          shardmesh_text* json, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_text_free(shardmesh_text text);

SHARDMESH_C_END

#endif
