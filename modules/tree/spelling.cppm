// SPDX-License-Identifier: Apache-2.0
// How one key is appended to the name of the path above it. Internal to the room.
module shardmesh.tree:spelling;

import shardmesh.std;
import :path;
import :key_policy;

namespace shardmesh {

/// \param is_first  nothing is above the key
void append_key(std::string& name, const path_key& key, bool is_first, key_policy policy);

}  // namespace shardmesh
