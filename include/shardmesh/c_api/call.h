/* SPDX-License-Identifier: Apache-2.0 */
/* Progress, cancellation, and the timeout of a long call. */
#ifndef SHARDMESH_C_API_CALL_H
#define SHARDMESH_C_API_CALL_H

#include <shardmesh/c_api/export.h>

SHARDMESH_C_BEGIN

/* With a `progress` or a timeout, a separate thread does the work while the calling thread watches it. */
typedef struct shardmesh_call {
  size_t struct_size;
  /* Called on the calling thread with the bytes moved so far: every 50 ms, when everything is written and the
   * destination is about to be put in place, and at the end if more bytes were moved since.
   * A result other than 0 ends the call at its next safe point with SHARDMESH_CANCELLED and nothing written. The result
   * of the call at the end is ignored: no work is left.
   * Must not use the handles that the call was given, throw, or jump out. Null: no reports. */
  int32_t (*progress)(void* user, int64_t bytes);
  void* user;
  int64_t timeout_milliseconds; /* after which the call ends with SHARDMESH_DEADLINE_EXCEEDED; 0: never */
} shardmesh_call;

SHARDMESH_C_END

#endif
