// SPDX-License-Identifier: Apache-2.0
// Pictures of trees: nested containers, one line per node. Not here: what leaves are; their labels are the caller's.
export module shardmesh.draw:tree;

import shardmesh.std;
import shardmesh.tree;
import :text;

export namespace shardmesh {

/// A tree, one line per node: its key, for a container how many children it has ("{2}" a mapping, "[2]" a sequence,
/// "(2)" a tuple), for a leaf its label. Keys are spelled as in `to_string(path)`; control bytes of keys and labels are
/// escaped. With `color`, keys of containers are coloured by kind.
///     {2}
///     |- model {2}
///     |  |- weight  float32 [2, 3]
///     |  `- ["a.b"]  5
///     `- betas (2)
///        |- [0]  0.9
///        `- [1]  0.99
/// \param leaf_labels  a label for each leaf, in leaf order; where there are too few, the other leaves have none
/// \returns at most `max_lines` lines and one that counts the other nodes; each cut at `max_columns` characters, but
///          for the lines that lead to it. Ends with a newline; empty for an empty spec
/// Cost: O(lines * depth + children of the containers drawn). No recursion.
std::string draw_tree(const tree_spec& tree, std::span<const std::string> leaf_labels = {},
                      const draw_options& options = {});

/// The same as an SVG document, light or dark as its reader's system is: one row per node, branches as lines, keys of
/// containers coloured by kind. `max_columns` is of a row's own text. Cost: O(lines + children of the containers
/// drawn).
std::string svg_tree(const tree_spec& tree, std::span<const std::string> leaf_labels = {},
                     const draw_options& options = {});

}  // namespace shardmesh
