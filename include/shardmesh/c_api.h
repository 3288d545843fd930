/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of shardmesh, for compilers without modules. It opens, loads, maps, saves, rewrites, and compares
 * sharded checkpoints, and computes layouts and plans. C11, and C++ from C++11 on; it includes only standard headers.
 *
 * Conventions of the whole interface:
 * - A call that can fail returns a status: SHARDMESH_OK (0) or the kind of failure. Its last argument, which may be
 *   null, receives the error with all its fields; free it with `shardmesh_error_free`. No exception leaves a call.
 *   A helper that checks calls takes the address of the error: `check(shardmesh_load(..., &error), &error)`. C leaves
 *   the order of argument evaluation open, so `check(shardmesh_load(..., &error), error)` may pass the old value.
 * - A call returns a new object through a pointer argument, which is null after a failure. `..._close` and `..._free`
 *   accept null.
 * - Options, and descriptions that a call fills in, begin with `struct_size`; the caller sets it to the struct's size.
 *   Every other field may be 0, its default. The structs can therefore grow: an older library refuses a field that it
 *   does not know unless it is 0. Null options mean all defaults. Structs that are elements of arrays never grow.
 * - Texts and arrays behind pointers live as long as the handle that they come from, unless documented otherwise.
 *   Texts hold the bytes of the files: a 0 follows them, and they may contain zeros.
 * - Sizes, strides, and offsets count elements, not bytes.
 * - Threads: calls on different handles are independent. Several threads may describe one checkpoint and load from it
 *   at once; the other calls on it wait for one another. Free each handle once, when no call uses it any more.
 */
#ifndef SHARDMESH_C_API_H
#define SHARDMESH_C_API_H

#include <shardmesh/c_api/call.h>
#include <shardmesh/c_api/checking.h>
#include <shardmesh/c_api/checkpoint.h>
#include <shardmesh/c_api/conventions.h>
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
