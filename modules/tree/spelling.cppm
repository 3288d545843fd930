// SPDX-License-Identifier: Apache-2.0
// Appends one key to the name of the path above it. Internal to the room.
module shardmesh.tree:spelling;

import shardmesh.std;
import :path;
import :key_policy;

namespace shardmesh {

/// Appends `key` to `name`, spelled for `policy`. \param is_first  the key is the first of the name
void append_key(std::string& name, const path_key& key, bool is_first, key_policy policy);

}  // namespace shardmesh
