// SPDX-License-Identifier: Apache-2.0
// Limits the nesting of JSON before recursive code processes it.
export module shardmesh.storage:json_depth;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Refuses text, JSON or not, whose brackets are nested deeper than `limit`. The default is for JSON that is parsed
/// into a document in memory, because writing and destroying one recurses.
/// \errors errc::bad_format
/// Cost: one pass.
result<void> check_json_depth(std::string_view text, std::size_t limit = 1024);

}  // namespace shardmesh
