// SPDX-License-Identifier: Apache-2.0
// Pictures of a checkpoint's entries: the boxes that each rank holds, and the tree of their paths. Pages are in
// page.hpp.
#pragma once
#include <cstddef>
#include <string>

#include "entry_tree.hpp"
#include "inspect_json.hpp"
#include "list_limit.hpp"
#include "output_file.hpp"

import shardmesh;
import shardmesh.checkpoint_core;

namespace tool {

/// The number of characters of a node's line.
constexpr std::size_t widest_tree = 160;

/// The tensor's chunks, owned by the ranks that wrote them if the file names contain ranks; else by file numbers.
shardmesh::result<shardmesh::distribution> held_by_ranks(const shardmesh::catalog& contents,
                                                         const shardmesh::tensor_entry& tensor);
/// Returns the entries by their paths. Objects are labelled by their kind; their values are not read.
shardmesh::result<labelled_tree> tree_of(const shardmesh::catalog& contents, const shown_entries& shown);

/// Writes the maps of ranks' boxes, or the tree, as one SVG picture in `file`. By default, the limit is
/// 100 maps, or 2000 nodes. Returns the exit status, and reports what cannot be drawn or written.
int write_maps(const shardmesh::catalog& contents, const shown_entries& shown, output_file& file, list_limit limit);
int write_tree(const shardmesh::catalog& contents, const shown_entries& shown, output_file& file, list_limit limit);

}  // namespace tool
