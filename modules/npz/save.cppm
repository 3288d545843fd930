// SPDX-License-Identifier: Apache-2.0
// Writes NumPy's .npz archives: contiguous little-endian arrays in stored records.
export module shardmesh.npz:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;

export namespace shardmesh::npz {

/// Returns why an archive cannot hold a tensor of plain elements: its name is not UTF-8, contains a NUL, or is too
/// long, or NumPy lacks its dtype. Returns nothing when it can.
std::optional<error> problem_of(std::string_view key, dtype type, const extents& shape);

/// Writes whole tensors (their chunks are ignored), each as the record KEY.npy, and the objects, if any, as the record
/// "shardmesh.objects.json". An archive without tensors always has that record. Streams from `source`. Elements begin
/// at multiples of 64 of the file. Each record has its CRC-32. `numpy.load` reads the file without `allow_pickle`.
/// \errors before a file exists, one problem for each entry that the format cannot hold: those of `problem_of`;
///         errc::unsupported for a tensor of an unknown representation; errc::duplicate_key, also for a key that is
///         another key and ".npy", which `numpy.load` would confuse; those of safetensors' `problems_of_names`. Later:
///         those of source, staged output, and executor
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source,
                         const save_options& options = {});

}  // namespace shardmesh::npz
