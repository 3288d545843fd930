// SPDX-License-Identifier: Apache-2.0
// Not exported: a tree as the lines of its pictures, of characters and SVG.
module shardmesh.draw:tree_rows;

import shardmesh.std;
import shardmesh.tree;

namespace shardmesh {

struct tree_row {
  std::size_t node = 0, depth = 0;
  std::size_t parent = 0;  // row of it; the root's own
  bool is_last = true;     // of its parent's children
  std::string key{};       // as a path spells it, escaped; the root has none
  std::string rest{};      // of a container how many children it has, of a leaf its label, escaped
};

// The first `most` nodes, each container before its children; one at least, unless the spec is empty.
std::vector<tree_row> rows_of(const tree_spec& tree, std::span<const std::string> leaf_labels, std::size_t most);

// At most this many characters (code points) of well-formed text.
std::string_view cut_text(std::string_view text, std::size_t most);

}  // namespace shardmesh
