// SPDX-License-Identifier: Apache-2.0
// Not exported: resolves Megatron folders that hold no checkpoint themselves: the folder of a run, and a folder of the
// older format with a folder for each rank. Reading their contents is in rooms dcp and torch_file, and in
// megatron_ranks.
module shardmesh.checkpoint:megatron_folder;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Returns the folder or file to open in place of `folder`; nothing when it is not a Megatron folder. For a run's folder
// (latest_checkpointed_iteration.txt), it is that of the latest iteration. For a folder with the folder of a single
// rank (mp_rank_00), it is that rank's file. For one of several ranks, it is the folder, which megatron_ranks opens.
// \errors errc::bad_format when the text does not name an iteration, or one that does not exist (names the existing ones);
//         errc::unsupported for the zarr format
result<std::optional<std::filesystem::path>> megatron_checkpoint_in(const std::filesystem::path& folder);

}  // namespace shardmesh
