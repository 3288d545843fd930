// SPDX-License-Identifier: Apache-2.0
// Integer dict keys (an optimizer's {"state": {0: ..}}) in formats whose keys are text.
export module shardmesh.torch_file:integer_keys;

import shardmesh.std;
import shardmesh.checkpoint_core;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// Replaces integer keys and pickled Python keys of a path by their names, as PyTorch's flattening and
/// torch_checkpointing do.
path with_text_keys(const path& where);

/// Returns a note for the user that names the first entry below an integer key and says how such keys are written;
/// empty when there is none. `to` completes the note: "text in DCP's metadata, ..".
std::optional<std::string> note_of_integer_keys(std::span<const output_tensor> tensors,
                                                std::span<const output_object> objects, std::string_view to);

}  // namespace shardmesh::torch_file
