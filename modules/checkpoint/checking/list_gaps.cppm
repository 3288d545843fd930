// SPDX-License-Identifier: Apache-2.0
// Not exported: positions of lists without an entry. They are None in formats that nest, because PyTorch's flattening
// loses empty dicts.
module shardmesh.checkpoint:list_gaps;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :diff;

namespace shardmesh {

// The lists of a checkpoint by their paths, each with the largest index that an entry names.
using list_ends = std::map<std::string, std::int64_t>;
list_ends lists_of(const catalog& contents);

// The path of an entry that is an object in a list; null for other entries, and without an entry.
const path* path_in_list(const diff_side& side, const diff_entry* entry);

// Returns whether the entry is None, and the other side, whose lists these are, has a gap there.
result<bool> is_gap(const diff_side& side, const diff_entry& entry, const list_ends& lists);

}  // namespace shardmesh
