// SPDX-License-Identifier: Apache-2.0
// Writing .pt: one file that torch.load reads, as torch.save writes a nested state dict.
export module shardmesh.torch_file:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.catalog;

export namespace shardmesh::torch_file {

/// Writes whole tensors (their chunks are not looked at) and objects as one nested dict, by the entries' paths: names
/// are keys of dicts; indices are positions of lists, where None stands at those that no path names. Each tensor is
/// contiguous with a storage of its own; objects and tensors of other representations are written as their archives
/// have them, with the tensors in them. `torch.load(weights_only=True)` reads the file where the archives hold nothing
/// but plain data. Streams from `source`; archives are in memory until the file is written.
/// \errors in the report: errc::unsupported (a dtype that PyTorch lacks; an archive that is none, or of another byte
///         order), errc::duplicate_key, errc::invalid_argument (a path that leads through another entry); those of
///         source, staged output and executor. Source: torch/distributed/checkpoint/format_utils.py
///         (dcp_to_torch_save), torch/serialization.py
save_report save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                 std::span<const output_object> objects, element_source source, const save_options& options = {});

}  // namespace shardmesh::torch_file
