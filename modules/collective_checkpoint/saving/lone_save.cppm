// SPDX-License-Identifier: Apache-2.0
// Not exported: saves of one process in formats that ranks do not write together. All other saves are in save.
module shardmesh.collective_checkpoint:lone_save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :save;

namespace shardmesh {

// Returns whether only one process can write the format: a .pt file, a folder of torch_checkpointing, a GGUF file, or
// an .npz archive.
bool is_written_alone(target_format to);

// Saves a state that this process holds alone in such a format. Entries and problems are those of `save` by ranks;
// `options.before` and the staging pool are not used.
// \errors those of `save` by ranks before a file exists, and those of the format's writer
result<save_report> save_alone(const std::filesystem::path& destination, const const_local_state& held,
                               const rank_save_options& options);

}  // namespace shardmesh
