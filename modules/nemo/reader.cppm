// SPDX-License-Identifier: Apache-2.0
// Opens .nemo files as checkpoints. Their members are listed in archive.
export module shardmesh.nemo:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::nemo {

/// The member with a model's settings. It becomes a text of the checkpoint, under this key.
inline constexpr std::string_view config_name = "model_config.yaml";
/// The member with a model's weights: a file of torch.save.
inline constexpr std::string_view weights_name = "model_weights.ckpt";

/// The folder with a model's weights: one of Megatron (torch_dist).
inline constexpr std::string_view weights_folder = "model_weights/";

/// Opens a .nemo file. The entries are those of its model_weights.ckpt, or those of its folder model_weights, with the
/// same keys. With such a folder, the reader has the format `dcp`, because its entries are DCP's items. A note names
/// the members that are not read; a warning names those that may hold tensors.
/// \errors those of `archive::open`, `torch_file::open`, and `dcp::open`; errc::bad_format without weights;
///   errc::unsupported for a folder in a compressed archive, for zarr, and for a file for each rank, with the remedy
/// Source: nemo/core/connectors/save_restore_connector.py
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

}  // namespace shardmesh::nemo
