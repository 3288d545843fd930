// SPDX-License-Identifier: Apache-2.0
// Pictures of trees: nested containers, one line per node. The caller supplies the labels of leaves.
export module shardmesh.draw:tree;

import shardmesh.std;
import shardmesh.tree;
import :text;

export namespace shardmesh {

/// Draws a tree, one line per node. A line has the node's key, then the number of children of a container ("{2}" a
/// mapping, "[2]" a sequence, "(2)" a tuple), or the label of a leaf. Keys are written as in `to_string(path)`; control
/// bytes of keys and labels are escaped. With `color`, keys of containers are coloured by kind.
///     {2}
///     |- model {2}
///     |  |- weight  float32 [2, 3]
///     |  `- ["a.b"]  5
///     `- betas (2)
///        |- [0]  0.9
///        `- [1]  0.99
/// \param leaf_labels  a label for each leaf, in leaf order; leaves beyond its end have none
/// \returns at most `max_lines` lines, and one more with the number of further nodes. Each has at most `max_columns`
///          characters, if its branch lines have fewer: a long key is `shortened`, so that its end stays visible, and a
///          label is cut at its end. Ends with a newline; empty for an empty spec.
/// Cost: O(lines * depth + children of the containers drawn). No recursion.
std::string draw_tree(const tree_spec& tree, std::span<const std::string> leaf_labels = {},
                      const draw_options& options = {});

/// Draws the same as an SVG document, in light or dark colours as the viewer's system prefers: one row per node,
/// branches as lines, keys of containers coloured by kind. `max_columns` limits the text of a row, without its branch
/// lines.
/// Cost: O(lines + children of the containers drawn).
std::string svg_tree(const tree_spec& tree, std::span<const std::string> leaf_labels = {},
                     const draw_options& options = {});

}  // namespace shardmesh
