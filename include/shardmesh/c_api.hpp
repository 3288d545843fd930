// SPDX-License-Identifier: Apache-2.0
// The C interface for C++17, header only: handles that give themselves back, values, and exceptions of one type,
// `shardmesh::c_api::error`. For GCC, MSVC and nvcc, which cannot `import shardmesh;`; where that works, use it
// instead.
#pragma once
#include <shardmesh/c_api.h>

#include <shardmesh/c_api/checking.hpp>
#include <shardmesh/c_api/checkpoint.hpp>
#include <shardmesh/c_api/error.hpp>
#include <shardmesh/c_api/layout.hpp>
#include <shardmesh/c_api/mapping.hpp>
#include <shardmesh/c_api/saving.hpp>
#include <shardmesh/c_api/start_load.hpp>
#include <shardmesh/c_api/values.hpp>
