// SPDX-License-Identifier: Apache-2.0
// The entries of a checkpoint as the tree of their paths.
#pragma once
#include <string>
#include <utility>
#include <vector>

import shardmesh;

namespace tool {

/// Draws named leaves as a tree, in the order in which paths first appear. A path of one name is split at its dots, for
/// the picture alone. Where one path begins another, its own leaf is the child "(itself)".
///
/// \param entries  paths, none empty, and what stands behind each
/// Cost: O(sum of depths, times the logarithm of the children). No recursion.
std::string draw_entries(const std::vector<std::pair<shardmesh::path, std::string>>& entries,
                         const shardmesh::draw_options& options);

}  // namespace tool
