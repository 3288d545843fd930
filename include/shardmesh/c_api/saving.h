/* SPDX-License-Identifier: Apache-2.0 */
/* Saves tensors in memory as a new checkpoint. */
#ifndef SHARDMESH_C_API_SAVING_H
#define SHARDMESH_C_API_SAVING_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checkpoint.h>

SHARDMESH_C_BEGIN

/* A part of a tensor: the box at `offsets` with the sizes of `from`. `offsets` null: the whole tensor. In DCP it
 * becomes one chunk in the file of the rank `writer`. */
typedef struct shardmesh_save_part {
  const int64_t* offsets;
  shardmesh_const_tensor from;
  int32_t writer;
  int32_t reserved;
} shardmesh_save_part;

/* A tensor; its parts must tile it. `key_size` 0: the key ends at its first 0. */
typedef struct shardmesh_save_tensor {
  const char* key;
  size_t key_size;
  const int64_t* shape;
  int64_t rank;
  const shardmesh_save_part* parts;
  size_t part_count;
} shardmesh_save_tensor;

/* Options of all calls that write. */
typedef struct shardmesh_save_options {
  size_t struct_size;
  const shardmesh_call* call;
  int64_t memory_bytes;    /* for staging; 0: the library's default */
  shardmesh_format format; /* to write */
  int32_t overwrite;       /* replaces an existing checkpoint */
  int32_t skip_sync;       /* does not wait for the disk: a power cut may lose the new data */
  int32_t threads;         /* 0: all cores */
  const char* previous; /* DCP: an earlier checkpoint beside `path`, to whose unchanged chunks the new one refers. Null:
                           everything is written. Must be null for `convert` and `reshard` */
  /* Saves the tensors under another naming convention, as `map` of `shardmesh_open_options` opens them. The tensors
   * have no configuration beside them, so the sizes of the model are those of `config` and `sizes`. Every tensor must
   * have a place in the mapping. The writers of parts have no effect. Null: the given names. Null for `convert` and
   * `reshard`, which map the checkpoint that they read, and not together with `previous`. */
  const char* map;
  const char* config;                /* with `map`: a JSON file with the model's sizes; null: none */
  const shardmesh_model_size* sizes; /* with `map`: as in `shardmesh_open_options` */
  size_t size_count;
  int32_t map_inverse; /* with the file of a `map`: applies the mapping from right to left */
  int32_t reserved;    /* 0 */
} shardmesh_save_options;

typedef struct shardmesh_save_report shardmesh_save_report;

typedef struct shardmesh_save_counts {
  size_t struct_size;
  int64_t tensors;
  int64_t bytes;
  int64_t objects;
  int64_t files;
  int64_t skipped_tensors; /* that the destination cannot hold, if skipping is allowed */
  int64_t skipped_objects;
  int64_t excluded; /* by the selection */
  size_t note_count;
  int64_t referred_bytes; /* the part of `bytes` that earlier checkpoints hold; the rest was written */
} shardmesh_save_counts;

/* Writes a new checkpoint, whole or not at all: it appears in one step. Problems with several tensors are reported
 * as a list of errors. `report` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_save(const char* path, const shardmesh_save_tensor* tensors,
                                                   size_t tensor_count, const shardmesh_save_options* options,
                                                   shardmesh_save_report** report, shardmesh_error** error);

/* Fills `counts`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_save_report_describe(const shardmesh_save_report* report,
                                                                   shardmesh_save_counts* counts,
                                                                   shardmesh_error** error);
/* One note about the result, on one line. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_save_report_note(const shardmesh_save_report* report, size_t index,
                                                               shardmesh_text* note, shardmesh_error** error);
SHARDMESH_C_EXPORT void shardmesh_save_report_free(shardmesh_save_report* report);

SHARDMESH_C_END

#endif
