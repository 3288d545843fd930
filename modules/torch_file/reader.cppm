// SPDX-License-Identifier: Apache-2.0
// reader: a .pt file as a checkpoint. Not here: the archive (item).
export module shardmesh.torch_file:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::torch_file {

/// A file that `torch.save` wrote, holding a state dict (nested at will). Keys are those that DCP would give.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

}  // namespace shardmesh::torch_file
