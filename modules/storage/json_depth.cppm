// SPDX-License-Identifier: Apache-2.0
// Limits the nesting of JSON before recursive code processes it.
export module shardmesh.storage:json_depth;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The deepest nesting of JSON that is parsed into a document in memory, because writing and destroying one recurses.
inline constexpr std::size_t max_json_depth = 1024;

/// Refuses text, JSON or not, whose brackets are nested deeper than `limit`.
/// \errors errc::bad_format
/// Cost: one pass.
result<void> check_json_depth(std::string_view text, std::size_t limit = max_json_depth);

}  // namespace shardmesh
