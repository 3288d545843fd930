// SPDX-License-Identifier: Apache-2.0
// Integer keys of dicts (an optimizer's {"state": {0: ..}}), on their way into formats whose keys are text.
export module shardmesh.torch_file:integer_keys;

import shardmesh.std;
import shardmesh.catalog;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// The path with names in the place of integer keys and of those that only Python has, as PyTorch's flattening and
/// torch_checkpointing have them.
path with_text_keys(const path& where);

/// A line for the user that names the first entry below an integer key and says what becomes of it; nothing without
/// any. `to`: "text in DCP's metadata, ..".
std::optional<std::string> note_of_integer_keys(std::span<const output_tensor> tensors,
                                                std::span<const output_object> objects, std::string_view to);

}  // namespace shardmesh::torch_file
