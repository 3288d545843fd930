// SPDX-License-Identifier: Apache-2.0
// Not exported: converts a tree to the rows of its text and SVG pictures.
module shardmesh.draw:tree_rows;

import shardmesh.std;
import shardmesh.tree;

namespace shardmesh {

struct tree_row {
  std::size_t node = 0, depth = 0;
  std::size_t parent = 0;  // the parent's row; for the root its own
  bool is_last = true;     // the last of its parent's children
  std::string key{};       // as in a path's text, escaped; the root has none
  std::string rest{};      // a container's number of children, or a leaf's label, escaped
};

// Returns the rows of the first `most` nodes, each container before its children; at least one, unless the spec is
// empty.
std::vector<tree_row> rows_of(const tree_spec& tree, std::span<const std::string> leaf_labels, std::size_t most);

// Returns the first `most` characters (code points) of well-formed text: of labels. Keys are `shortened`.
std::string_view cut_text(std::string_view text, std::size_t most);

}  // namespace shardmesh
