// SPDX-License-Identifier: Apache-2.0
// The text of extents. The type itself is in include/shardmesh/extents.hpp.
export module shardmesh.core:extents;

import shardmesh.std;
export import :headers;

export namespace shardmesh {
/// Formats extents as "[3, 4]"; those of a scalar as "[]".
std::string to_string(const extents& values);
}  // namespace shardmesh
