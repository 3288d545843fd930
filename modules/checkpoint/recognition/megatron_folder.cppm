// SPDX-License-Identifier: Apache-2.0
// Not exported: resolves Megatron folders that hold no checkpoint themselves. A run's folder stands for one iteration;
// a folder of the older format has a folder for each rank. Reading them is in rooms dcp and torch_file.
module shardmesh.checkpoint:megatron_folder;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Returns the folder or file that `folder` stands for; nothing when it is not a Megatron folder. A run's folder
// (latest_checkpointed_iteration.txt) stands for its latest iteration. A folder with the folder of a single rank
// (mp_rank_00) stands for that rank's file.
// \errors errc::bad_format when the text does not name an iteration, or one that does not exist (names the existing ones);
//         errc::unsupported for several ranks, and for the zarr format
result<std::optional<std::filesystem::path>> megatron_checkpoint_in(const std::filesystem::path& folder);

}  // namespace shardmesh
