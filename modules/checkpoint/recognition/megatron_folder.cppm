// SPDX-License-Identifier: Apache-2.0
// Not exported: folders of Megatron's that hold no checkpoint themselves: that of a run, of which one iteration is
// meant, and that of its older format with a folder for each rank. Not here: reading one (dcp, torch_file).
module shardmesh.checkpoint:megatron_folder;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// The folder or file that is meant by `folder`; nothing when it is none of Megatron's. A run's folder
// (latest_checkpointed_iteration.txt) means its latest iteration, a folder with one rank's folder (mp_rank_00) that
// rank's file.
// \errors errc::bad_format for a text that names no iteration, or one that is not there (naming those that are);
//         errc::unsupported for several ranks, and for the zarr format
result<std::optional<std::filesystem::path>> megatron_checkpoint_in(const std::filesystem::path& folder);

}  // namespace shardmesh
