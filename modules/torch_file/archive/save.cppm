// SPDX-License-Identifier: Apache-2.0
// Writes a .pt file that torch.load reads, as torch.save writes a nested state dict.
export module shardmesh.torch_file:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;

export namespace shardmesh::torch_file {

/// Writes whole tensors (their chunks are ignored) and objects as one nested dict by the entries' paths. Names are dict
/// keys; indices are list positions, with None at positions without an entry. Each tensor is contiguous and has its own
/// storage. Objects and opaque tensors are written as in their archives, including the tensors inside them.
/// `torch.load(weights_only=True)` reads the file if the archives hold only plain data. Elements stream from `source`;
/// archives stay in memory until the file is written.
/// \errors errc::unsupported for each tensor whose dtype PyTorch lacks; errc::unsupported (bytes that are not an
///   archive, or an archive of another byte order), errc::duplicate_key, errc::invalid_argument (a path that leads
///   through another entry); those of the source, the staged output, and the executor
/// Source: torch/distributed/checkpoint/format_utils.py (dcp_to_torch_save), torch/serialization.py
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source,
                         const save_options& options = {});

}  // namespace shardmesh::torch_file
