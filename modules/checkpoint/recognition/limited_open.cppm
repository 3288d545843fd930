// SPDX-License-Identifier: Apache-2.0
// Not exported: the limits of a call that opens a checkpoint, and what stores answer while it runs.
module shardmesh.checkpoint:limited_open;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

using opened_reader = result<std::unique_ptr<checkpoint_reader>>;

// Opens the checkpoint at `path` with `work`, which gets the options with one pool of files and without the limits.
// errc::cancelled and errc::deadline_exceeded, also if `work` took an ended request for a damaged part; the first error
// of a store that `work` could have taken for a missing file.
opened_reader open_within_limits(const std::filesystem::path& path, const open_options& options,
                                 function_ref<opened_reader(const open_options&)> work);

}  // namespace shardmesh
