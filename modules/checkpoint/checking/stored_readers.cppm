// SPDX-License-Identifier: Apache-2.0
// Not exported: the checkpoints in which a reader's entries are stored. A folder of parts has several.
module shardmesh.checkpoint:stored_readers;

import shardmesh.std;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Returns the stored checkpoints from which the entries of a folder of parts come; otherwise the one of the reader.
std::set<const checkpoint_reader*> readers_of_parts(const checkpoint_reader& reader);

// Returns readers of the items that these checkpoints leave out of their catalogs (`dcp::copies_of`).
std::vector<checkpoint_reader*> readers_of_copies(const checkpoint_reader& reader);

}  // namespace shardmesh
