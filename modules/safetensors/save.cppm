// SPDX-License-Identifier: Apache-2.0
// Writing safetensors: one file, or a Hugging Face folder. What safetensors cannot hold goes to objects.json beside it.
export module shardmesh.safetensors:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.catalog;

export namespace shardmesh::safetensors {

struct file_options {
  bool folder = false;               // a Hugging Face folder instead of one file
  std::int64_t max_shard_bytes = 0;  // of a folder; 0: one file
  std::string stem = "model";        // of a folder: STEM.safetensors, or STEM-00001-of-00002.safetensors with an index
  /// Its texts go into the `__metadata__` of the files that take tensors of their files ("format" is "pt" without one):
  /// owners of `bytes.from` are numbers of its files. Where they differ for one key, the first stays and a note says
  /// so.
  const catalog* carried = nullptr;
  std::vector<side_file> side_files{};  // of a folder: to be copied beside
};

/// Writes whole tensors (their chunks are not looked at) and, when there are any, the objects: to NAME.objects.json
/// beside NAME.safetensors and into its header, or to objects.json in the folder. Streams from `source`; every file
/// carries its own checksums in
/// __metadata__ ("shardmesh.xxh3"), a folder also the record of `checksum`.
/// The report lists every tensor that the format cannot hold; nothing is written then.
save_report save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                 std::span<const output_object> objects, element_source source, const file_options& format,
                 const save_options& options = {});

}  // namespace shardmesh::safetensors
