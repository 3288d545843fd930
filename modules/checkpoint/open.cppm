// SPDX-License-Identifier: Apache-2.0
// open: a checkpoint of whichever format. Not here: the formats (dcp, torch_file, safetensors).
export module shardmesh.checkpoint:open;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh {

/// Opens a DCP folder, a .pt file, a safetensors file or a Hugging Face folder, whichever it is.
/// \errors errc::io; errc::bad_format when it is none of them; errc::incomplete_save for a folder of .distcp files
///         without metadata; the format's own.
result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const std::filesystem::path& path,
                                                           const open_options& options = {});

}  // namespace shardmesh
