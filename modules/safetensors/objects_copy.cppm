// SPDX-License-Identifier: Apache-2.0
// objects_copy: NAME.objects.json beside a single safetensors file while that file is written: the copy of the objects
// in its header. Not here: the document (objects_file).
export module shardmesh.safetensors:objects_copy;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::safetensors {

/// The copy is made durable before, and renamed after, the file that holds the objects as well.
class objects_copy {
 public:
  /// Looks at what an overwrite would replace or remove: the copy of the objects of the file that it replaces, and
  /// nothing else that has its name. `document`: empty where there are no objects; it outlives the result.
  /// \errors errc::destination_exists, errc::io
  static result<objects_copy> look(const std::filesystem::path& destination, std::string_view document,
                                   const output_options& options);
  /// Makes the file, under a temporary name.
  result<void> stage();
  /// Writes it, all but the rename.
  result<void> prepare();
  /// After the file itself is in place: puts the copy there, or takes away the one that belonged to the file which was
  /// just replaced. Adds to `notes`.
  result<void> commit(std::vector<std::string>& notes);

 private:
  std::filesystem::path destination_, beside_;
  std::string_view document_;
  output_options options_;
  seen_destination old_;  // the copy that an overwrite found
  std::optional<staged_output> output_;
};

}  // namespace shardmesh::safetensors
