// SPDX-License-Identifier: Apache-2.0
// Writes safetensors: one file, or a Hugging Face folder. Objects that are not tensors go to objects.json beside it.
export module shardmesh.safetensors:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;

export namespace shardmesh::safetensors {

struct file_options {
  bool folder = false;               // a Hugging Face folder instead of one file
  std::int64_t max_shard_bytes = 0;  // for a folder; 0: one file
  std::string stem = "model";        // for a folder: STEM.safetensors, or STEM-00001-of-00002.safetensors with an index
  /// A catalog whose texts go into the `__metadata__` of the files that receive tensors from its files. The text
  /// "format" defaults to "pt". The owners of `bytes.from` are its file numbers. When texts of one key differ, the
  /// first stays and a note reports the difference.
  const catalog* carried = nullptr;
  std::vector<side_file> side_files{};  // for a folder: copied into it
};

/// Writes whole tensors (their chunks are ignored) and, if any, the objects: into the header of NAME.safetensors and to
/// NAME.objects.json beside it, or to objects.json in the folder. Streams from `source`. Every file carries its own
/// checksums in __metadata__ ("shardmesh.xxh3"); a folder also has the record of `checksum`.
/// \errors before a file exists, one problem for each entry that the format cannot hold: those of `problems_of` and
///         `problems_of_names`; errc::unsupported for a tensor of an unknown representation. Later: those of source,
///         staged output, and executor
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const file_options& format,
                         const save_options& options = {});

}  // namespace shardmesh::safetensors
