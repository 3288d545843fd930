// SPDX-License-Identifier: Apache-2.0
// Not exported: recognises the kind of checkpoint in a folder by the names there. Opening it is in open.
module shardmesh.checkpoint:folders;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// Returns the format of the checkpoint in the folder, or nothing when it holds none. errc::io when the folder cannot be
// listed.
result<std::optional<checkpoint_format>> format_of_folder(const std::filesystem::path& folder);

// Lists the checkpoints that the user may have meant instead, from two levels of folders: "step-10 (dcp), final (hf),
// model.pt (torch)". Empty when there are none. Looks at no more than a few thousand names, and says when it stops
// there. Enters no linked folder.
std::string checkpoints_below(const std::filesystem::path& folder);

}  // namespace shardmesh
