/* SPDX-License-Identifier: Apache-2.0 */
/* A load that goes on in a thread of its own, whose tensors can be used as they arrive. */
#ifndef SHARDMESH_C_API_START_LOAD_H
#define SHARDMESH_C_API_START_LOAD_H

#include <shardmesh/c_api/loading.h>

SHARDMESH_C_BEGIN

typedef struct shardmesh_start_load_options {
  size_t struct_size;
  /* Called with each key when everything that was asked of it is in memory, in the order in which tensors are stored,
   * one at a time, from the load's threads. Anything but 0 ends the load with SHARDMESH_CANCELLED unless that was the
   * last. The key lives for the call. May describe the checkpoint, and make no other call on it; must not throw or jump
   * out, nor wait for the load. Null: nobody is told. */
  int32_t (*arrived)(void* user, shardmesh_text key);
  void* user;
  int64_t timeout_milliseconds; /* after which it ends with SHARDMESH_DEADLINE_EXCEEDED; 0: never */
  int32_t threads;              /* 0: all cores */
  int32_t allow_narrowing;      /* casts that lose values */
  int32_t check;                /* compares the checksums of what is read, which reads it twice */
  int32_t allow_shape_mismatch; /* as of shardmesh_load_options */
} shardmesh_start_load_options;

typedef struct shardmesh_loading shardmesh_loading;

/* As `shardmesh_load`, but returns when the load has begun. What the requests say is copied; the checkpoint stays open,
 * and nobody else touches the memory that is filled (of a key: before it has arrived), until the load has ended.
 * What is wrong with a request itself is an error of this call, the rest one of `shardmesh_loading_wait`. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_start_load(shardmesh_checkpoint* checkpoint,
                                                         const shardmesh_load_request* requests, size_t request_count,
                                                         const shardmesh_start_load_options* options,
                                                         shardmesh_loading** loading, shardmesh_error** error);

typedef struct shardmesh_loading_progress {
  size_t struct_size;
  int64_t bytes; /* that were loaded so far */
  int32_t done;  /* whether `shardmesh_loading_wait` would not block */
  int32_t reserved;
} shardmesh_loading_progress;

SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_describe(const shardmesh_loading* loading,
                                                               shardmesh_loading_progress* progress,
                                                               shardmesh_error** error);
/* Asks the load to end; from any thread, also from `arrived`. After its end, nothing. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_cancel(shardmesh_loading* loading, shardmesh_error** error);
/* Blocks until the load has come to its end, and says what became of it; may be called again. One thread waits at a
 * time. `bytes_read` may be null. */
SHARDMESH_C_EXPORT shardmesh_status shardmesh_loading_wait(shardmesh_loading* loading, int64_t* bytes_read,
                                                           shardmesh_error** error);
/* Cancels a load that goes on, and waits for its end. */
SHARDMESH_C_EXPORT void shardmesh_loading_free(shardmesh_loading* loading);

SHARDMESH_C_END

#endif
