// SPDX-License-Identifier: Apache-2.0
// Not exported: the first and last bytes of many items, read together. Opening an item takes both, and on a server each
// read is a request.
module shardmesh.dcp:item_ends;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

// Reads the first and last 8 KiB of every item that lies on a server. Ranges that are close together become one, and
// the ranges of a file are requested at the same time. Returns a source for each item, which has these bytes in memory
// and reads others from its file. It is null for an item that is not on a server, that has a transform, that lies
// outside of its file, or whose bytes cannot be read.
// Cost: at most 48 KiB of memory for each item, until the sources of its file are gone.
std::vector<std::shared_ptr<const byte_source>> with_ends(folder_files& files, std::span<const stored_range> items);

}  // namespace shardmesh::dcp
