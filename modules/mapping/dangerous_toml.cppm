// SPDX-License-Identifier: Apache-2.0
// Not exported: TOML that the parser must not see.
module shardmesh.mapping:dangerous_toml;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Returns an error, with the line and without the file, for a key with too many dots, and for a character that is not
// ASCII outside of strings and comments. Skips strings and comments of valid TOML; toml++ stops at the first text that
// is not valid. Cost: O(text).
std::optional<error> find_dangerous_toml(std::string_view text);

}  // namespace shardmesh
