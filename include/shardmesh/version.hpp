// SPDX-License-Identifier: Apache-2.0
// Version macros: macros cannot be exported from a module.
#pragma once
#define SHARDMESH_VERSION_MAJOR 0
#define SHARDMESH_VERSION_MINOR 1
#define SHARDMESH_VERSION_PATCH 0
#define SHARDMESH_VERSION "0.1.0"
