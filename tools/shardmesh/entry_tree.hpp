// SPDX-License-Identifier: Apache-2.0
// The entries of a checkpoint as the tree of their paths.
#pragma once
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.tree;

namespace tool {

struct labelled_tree {
  shardmesh::tree_spec tree;
  std::vector<std::string> labels;  // of the leaves, as draw_tree and svg_tree take them
};

/// Arranges named leaves as a tree, in the order in which their paths first appear. For the picture only, a path of one
/// name is split at its dots. If one path is the beginning of another, its own leaf is the child "(itself)".
///
/// \param entries  paths, none of them empty, with the label of each
/// Cost: O(sum of depths, times the logarithm of the children). No recursion.
shardmesh::result<labelled_tree> tree_of(const std::vector<std::pair<shardmesh::path, std::string>>& entries);

}  // namespace tool
