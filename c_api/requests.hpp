// SPDX-License-Identifier: Apache-2.0
// The requests of a load, converted and checked at the border.
#pragma once
#include <shardmesh/c_api/loading.h>

#include <cstddef>
#include <vector>

import shardmesh;

namespace c_api {

/// Checks the requests; errors of a request name its key. Of the caller's memory, the result refers only to the buffers
/// to fill.
/// \throws shape_mismatch for a whole tensor into memory of another shape, unless that is allowed
std::vector<shardmesh::load_request> to_requests(const shardmesh::checkpoint_reader& reader,
                                                 const shardmesh_load_request* requests, std::size_t count,
                                                 bool allow_shape_mismatch);

}  // namespace c_api
