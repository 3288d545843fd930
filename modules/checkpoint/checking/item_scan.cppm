// SPDX-License-Identifier: Apache-2.0
// Not exported: searches the pickles in the items of a checkpoint, each item once. Other files are searched in
// pickle_globals.
module shardmesh.checkpoint:item_scan;

import shardmesh.checkpoint_core;
import :global_collector;

namespace shardmesh {

/// Searches the items of a DCP folder, or the archives of a snapshot. Skips items that cannot be read, which `verify`
/// reports.
/// \param threads  0: all cores
void scan_items(checkpoint_reader& reader, int threads, global_collector& into);

}  // namespace shardmesh
