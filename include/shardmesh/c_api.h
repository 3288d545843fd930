/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of shardmesh, for compilers without modules: sharded checkpoints opened, loaded, mapped, saved,
 * rewritten and compared, layouts and plans. C11, and C++ from C++11 on; nothing but the standard library's headers.
 *
 * Conventions of the whole interface:
 * - A call that can fail returns a status, SHARDMESH_OK (0) or what went wrong; its last argument, which may be null,
 *   gets the error with all its fields, to be given back with `shardmesh_error_free`. No exception leaves a call.
 *   A helper that checks calls takes the address of the error: `check(shardmesh_load(..., &error), &error)`. The order
 * in
 *   which C evaluates arguments is open, so that `check(shardmesh_load(..., &error), error)` may pass the old value.
 * - What a call makes it gives through a pointer, which is null after a failure. `..._close` and `..._free` accept
 * null.
 * - Options, and descriptions that are filled in, begin with `struct_size`, which the caller sets to the struct's size;
 *   every other field may be 0, which is the default. So they can grow: an older library refuses a field that it does
 *   not know unless it is 0. Null stands for options that are all default. The elements of arrays never change.
 * - Texts and arrays that are pointed at live as long as the handle that they come from, unless it says otherwise.
 *   Texts are bytes, as the files have them; a 0 stands behind them, and may stand in them.
 * - Numbers of elements, not of bytes, in sizes, strides and offsets.
 * - Threads: calls on different handles do not disturb each other. A checkpoint may be described and loaded from by
 *   several threads at once; the other calls on it wait for one another. Handles are given back once, when no call
 *   uses them any more.
 */
#ifndef SHARDMESH_C_API_H
#define SHARDMESH_C_API_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checking.h>
#include <shardmesh/c_api/checkpoint.h>
#include <shardmesh/c_api/error.h>
#include <shardmesh/c_api/layout.h>
#include <shardmesh/c_api/loading.h>
#include <shardmesh/c_api/mapping.h>
#include <shardmesh/c_api/plan.h>
#include <shardmesh/c_api/rewriting.h>
#include <shardmesh/c_api/saving.h>
#include <shardmesh/c_api/start_load.h>
#include <shardmesh/c_api/values.h>

#endif
