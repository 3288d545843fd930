// SPDX-License-Identifier: Apache-2.0
// Version macros; a module cannot export macros.
#pragma once
#define SHARDMESH_VERSION_MAJOR 0
#define SHARDMESH_VERSION_MINOR 1
#define SHARDMESH_VERSION_PATCH 0
#define SHARDMESH_VERSION "0.1.0"
