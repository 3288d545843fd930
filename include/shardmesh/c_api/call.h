/* SPDX-License-Identifier: Apache-2.0 */
/* How a long call is watched and ended early. */
#ifndef SHARDMESH_C_API_CALL_H
#define SHARDMESH_C_API_CALL_H

#include <shardmesh/c_api/export.h>

SHARDMESH_C_BEGIN

/* With a `progress` or a timeout the work is done by a thread of its own, while the calling thread watches it. */
typedef struct shardmesh_call {
  size_t struct_size;
  /* Called now and then on the calling thread with the bytes that were moved so far: every 50 ms, when all is written
   * and the destination is about to be put in place, and at the end where more was moved since.
   * Anything but 0 ends the call as soon as what has begun can be left, with SHARDMESH_CANCELLED and nothing written;
   * at the end, when nothing is left to do, it counts for nothing.
   * May not call on the handles that the call was given; must not throw or jump out. Null: nobody is told. */
  int32_t (*progress)(void* user, int64_t bytes);
  void* user;
  int64_t timeout_milliseconds; /* after which it ends with SHARDMESH_DEADLINE_EXCEEDED; 0: never */
} shardmesh_call;

SHARDMESH_C_END

#endif
