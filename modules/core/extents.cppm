// SPDX-License-Identifier: Apache-2.0
// The spelling of extents. The type itself is in include/shardmesh/extents.hpp.
export module shardmesh.core:extents;

import shardmesh.std;
export import :headers;

export namespace shardmesh {
/// Spells extents as "[3, 4]"; a scalar's are "[]".
std::string to_string(const extents& values);
}  // namespace shardmesh
