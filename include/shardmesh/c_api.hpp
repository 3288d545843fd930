// SPDX-License-Identifier: Apache-2.0
// The C interface for C++17, header only: handles that free themselves, values, and one exception type,
// `shardmesh::c_api::error`. It is for GCC, MSVC, and nvcc, which cannot `import shardmesh;`; use the module where that
// works.
#pragma once
#include <shardmesh/c_api.h>

#include <shardmesh/c_api/checking.hpp>
#include <shardmesh/c_api/checkpoint.hpp>
#include <shardmesh/c_api/conventions.hpp>
#include <shardmesh/c_api/error.hpp>
#include <shardmesh/c_api/layout.hpp>
#include <shardmesh/c_api/mapping.hpp>
#include <shardmesh/c_api/saving.hpp>
#include <shardmesh/c_api/start_load.hpp>
#include <shardmesh/c_api/values.hpp>
