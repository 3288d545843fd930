// SPDX-License-Identifier: Apache-2.0
// json_depth: how deep JSON is nested, before it is given to anything that recurses on it.
export module shardmesh.storage:json_depth;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Deepest nesting of JSON that becomes a document in memory: its writers and destructors recurse.
inline constexpr std::size_t max_json_depth = 1024;

/// Refuses text whose brackets are open deeper than `limit`, JSON or not. errc::bad_format. Cost: one pass.
result<void> check_json_depth(std::string_view text, std::size_t limit = max_json_depth);

}  // namespace shardmesh
