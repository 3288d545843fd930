// SPDX-License-Identifier: Apache-2.0
// Joins lists of names for messages, and shortens long ones.
export module shardmesh.checkpoint_core:name_list;

import shardmesh.std;

export namespace shardmesh {

/// Joins at most ten names: "a, b, c and 7 more".
inline std::string name_list(std::span<const std::string> names) {
  constexpr std::size_t most = 10;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

}  // namespace shardmesh
