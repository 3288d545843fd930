/* SPDX-License-Identifier: Apache-2.0 */
/* A load that runs in its own thread; its tensors can be used as they arrive. */
#ifndef SHARDMESH_C_API_START_LOAD_H
#define SHARDMESH_C_API_START_LOAD_H

#include <shardmesh/c_api/loading.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_start_load_options {
  size_t struct_size;
  /* Called with each key when everything requested of it is in memory. Keys arrive in storage order, one at a time,
   * on the load's threads. A result other than 0 ends the load with SHARDMESH_CANCELLED, unless it was the last key.
   * The key is valid during the call. May describe the checkpoint, but make no other call on it; must not throw,
   * jump out, or wait for the load. Null: no reports. */
  int32_t (*on_arrival)(void* user, shardmesh_text key);
  void* user;
  int64_t timeout_milliseconds; /* after which the load ends with SHARDMESH_DEADLINE_EXCEEDED; 0: never */
  int32_t threads;              /* 0: all cores */
  int32_t allow_narrowing;      /* allows casts that lose values */
  int32_t check;                /* compares checksums of the data read, which is then read twice */
  int32_t allow_shape_mismatch; /* as in shardmesh_load_options */
} shardmesh_start_load_options;

typedef struct shardmesh_loading shardmesh_loading;

/* As `shardmesh_load`, but returns as soon as the load has begun. The requests are copied. Until the load has ended,
 * the checkpoint must stay open, and no other code may touch the memory being filled (for a key: until it has arrived).
 * Invalid requests are errors of this call; all others are errors of `shardmesh_loading_wait`. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_start_load(shardmesh_checkpoint* checkpoint,
                                                         const shardmesh_load_request* requests, size_t request_count,
                                                         const shardmesh_start_load_options* options,
                                                         shardmesh_loading** loading, shardmesh_error** error);

typedef struct shardmesh_loading_progress {
  size_t struct_size;
  int64_t bytes; /* loaded so far */
  int32_t done;  /* whether `shardmesh_loading_wait` would return at once */
  int32_t reserved;
} shardmesh_loading_progress;

/* Fills `progress`, whose struct_size must be set. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_describe(const shardmesh_loading* loading,
                                                               shardmesh_loading_progress* progress,
                                                               shardmesh_error** error);
/* Asks the load to end, from any thread, including from `on_arrival`. No effect after the load has ended. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_cancel(shardmesh_loading* loading, shardmesh_error** error);
/* Blocks until the load has ended, and returns its status; may be called again. Only one thread may wait at a time.
 * `bytes_read` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_wait(shardmesh_loading* loading, int64_t* bytes_read,
                                                           shardmesh_error** error);
/* Cancels a running load, and waits for its end. */
SHARDMESH_C_EXPORT void shardmesh_loading_free(shardmesh_loading* loading);

SHARDMESH_C_END

#endif
