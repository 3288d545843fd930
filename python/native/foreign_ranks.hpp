// SPDX-License-Identifier: Apache-2.0
// The name of the capsule in which one extension module of this package passes a communicator to another. The capsule
// holds a `shardmesh::any_communicator*`. Both modules are built from the same sources.
#pragma once
#include <shardmesh/version.hpp>

namespace bindings {

inline constexpr const char* foreign_ranks = "shardmesh.any_communicator of " SHARDMESH_VERSION;

}  // namespace bindings
