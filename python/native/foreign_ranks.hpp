// SPDX-License-Identifier: Apache-2.0
// How a communicator goes from one extension module of this package to another: in a capsule of this name, which holds
// a `shardmesh::any_communicator*`. Both are built from the same sources.
#pragma once
#include <shardmesh/version.hpp>

namespace bindings {

inline constexpr const char* foreign_ranks = "shardmesh.any_communicator of " SHARDMESH_VERSION;

}  // namespace bindings
