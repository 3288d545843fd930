/* SPDX-License-Identifier: Apache-2.0 */
/* The version of the binary interface, and the declaration of its functions. */
#ifndef SHARDMESH_C_API_EXPORT_H
#define SHARDMESH_C_API_EXPORT_H

#include <stddef.h>
#include <stdint.h>

/* Grows when programs compiled with an older header would stop working; the shared library's name carries it
 * (libshardmesh_c.so.1). New functions and new fields of options do not change it. */
#define SHARDMESH_C_API_VERSION 1

#if defined(__GNUC__)
#define SHARDMESH_C_EXPORT __attribute__((visibility("default")))
#else
#define SHARDMESH_C_EXPORT
#endif

#ifdef __cplusplus
#define SHARDMESH_C_BEGIN extern "C" {
#define SHARDMESH_C_END }
#else
#define SHARDMESH_C_BEGIN
#define SHARDMESH_C_END
#endif

#endif
