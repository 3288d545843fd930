// SPDX-License-Identifier: Apache-2.0
// The entries of a checkpoint as the tree of their paths.
#pragma once
#include <string>
#include <utility>
#include <vector>

import shardmesh;

namespace tool {

struct labelled_tree {
  shardmesh::tree_spec tree;
  std::vector<std::string> labels;  // of the leaves, as draw_tree and svg_tree take them
};

/// Named leaves as a tree, in the order in which paths first appear. A path of one name is split at its dots, for the
/// picture alone. Where one path begins another, its own leaf is the child "(itself)".
///
/// \param entries  paths, none empty, and what stands behind each
/// Cost: O(sum of depths, times the logarithm of the children). No recursion.
shardmesh::result<labelled_tree> tree_of(const std::vector<std::pair<shardmesh::path, std::string>>& entries);

}  // namespace tool
