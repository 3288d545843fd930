// SPDX-License-Identifier: Apache-2.0
// Not exported: which kind of checkpoint a folder holds, by the names in it. Not here: opening it.
module shardmesh.checkpoint:folders;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh {

// dcp, hf or torch_files; nothing when it holds neither. errc::io when it cannot be listed.
result<std::optional<checkpoint_format>> format_of_folder(const std::filesystem::path& folder);

// What could have been meant instead: "step-10 (dcp), final (hf), model.pt (torch)", from two levels of folders; empty
// when there is nothing. Looks at no more than a few thousand names, saying so, and enters no linked folder.
std::string checkpoints_below(const std::filesystem::path& folder);

}  // namespace shardmesh
