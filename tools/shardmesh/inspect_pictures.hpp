// SPDX-License-Identifier: Apache-2.0
// A checkpoint's entries as pictures: who holds what, and the tree of their paths. Not here: pages (page.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "entry_tree.hpp"
#include "inspect_json.hpp"
#include "output_file.hpp"

import shardmesh;
import shardmesh.catalog;

namespace tool {

/// Characters of a node's line.
constexpr std::size_t widest_tree = 160;

/// The tensor's chunks with the ranks that wrote them as owners, where the files' names say so; else the files'
/// numbers.
shardmesh::result<shardmesh::distribution> held_by_ranks(const shardmesh::catalog& contents,
                                                         const shardmesh::tensor_entry& tensor);
/// The entries by their paths; objects are told by what they are, their values are not read.
shardmesh::result<labelled_tree> tree_of(const shardmesh::catalog& contents, const shown_entries& shown);

/// The maps of who holds what, or the tree, as one SVG picture in `file`. limit: entries; -1: 100 maps, 2000 nodes.
/// Returns the exit status: what cannot be drawn or written is said.
int write_maps(const shardmesh::catalog& contents, const shown_entries& shown, output_file& file, std::int64_t limit);
int write_tree(const shardmesh::catalog& contents, const shown_entries& shown, output_file& file, std::int64_t limit);

}  // namespace tool
