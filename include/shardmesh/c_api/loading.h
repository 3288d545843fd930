/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes of a checkpoint's tensors into the caller's memory, and objects as JSON. */
#ifndef SHARDMESH_C_API_LOADING_H
#define SHARDMESH_C_API_LOADING_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

/* The box at `offsets`, of the sizes of `to`, of the tensor `key`, into `to`, whose element type may be another than
 * the stored one. `offsets` null: the whole tensor, whose shape `to` has. `key_size` 0: the key ends at its first 0. */
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
  int32_t allow_narrowing; /* casts that lose values */
  int32_t check;           /* compares the checksums of what is read, which reads it twice */
  /* Boxes may reach beyond the stored tensor, and memory for a whole one have any sizes of as many dimensions: indices
   * stay, zeros are loaded where nothing is stored. */
  int32_t allow_shape_mismatch;
} shardmesh_load_options;

/* Fills every request, at the cost of the bytes that are needed; what requests share is read once. Memory that was not
 * reached when it fails is unspecified. `bytes_read` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_load(shardmesh_checkpoint* checkpoint,
                                                   const shardmesh_load_request* requests, size_t request_count,
                                                   const shardmesh_load_options* options, int64_t* bytes_read,
                                                   shardmesh_error** error);

/* An object as {"kind":..,"type":..,"value":..}: the tags of docs/formats.md. Nothing in the file is run. The text is
 * given back with `shardmesh_text_free`. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_load_object(shardmesh_checkpoint* checkpoint, size_t index,
                                                          shardmesh_text* json, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_text_free(shardmesh_text text);

SHARDMESH_C_END

#endif
