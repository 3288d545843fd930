// SPDX-License-Identifier: Apache-2.0
// Not exported: finds damage in archives from which no entry is read.
module shardmesh.checkpoint:damaged_archives;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh {

/// Searches the archives in the folder beside the files that the reader opened, and archives inside archives. Reports
/// local headers that contradict the directory, damaged pickles, and inner archives that cannot be read. Returns the
/// first 100 problems; the last of them counts the others. `verify` reports them as part of `find_globals`; writers
/// refuse them.
/// Cost: opens those files, and reads the directory of each archive that the reader opened.
std::vector<error> damaged_archives(const checkpoint_reader& reader, const read_limits& limits = {});

}  // namespace shardmesh
