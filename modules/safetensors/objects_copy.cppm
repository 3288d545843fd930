// SPDX-License-Identifier: Apache-2.0
// `objects_copy` writes NAME.objects.json beside a single safetensors file: a copy of the objects in the file's header.
// The document is in objects_file.
export module shardmesh.safetensors:objects_copy;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::safetensors {

/// The copy of the objects. It is made durable before the main file is renamed, and is renamed after it.
class objects_copy {
 public:
  /// Records the copy that an overwrite would replace or remove. Only a file of objects that shardmesh wrote is
  /// replaced.
  ///
  /// \param document  the copy's text, which must outlive the result; empty when there are no objects
  /// \errors errc::destination_exists, errc::io
  static result<objects_copy> look(const std::filesystem::path& destination, std::string_view document,
                                   const output_options& options);
  /// Creates the file under a temporary name.
  result<void> stage();
  /// Writes the file completely, except for the rename.
  result<void> prepare();
  /// Runs after the main file is in place: puts the copy there, or removes the copy that belonged to the replaced file.
  /// Adds to `notes`.
  result<void> commit(std::vector<std::string>& notes);

 private:
  std::filesystem::path destination_, beside_;
  std::string_view document_;
  output_options options_;
  destination_snapshot old_;  // the copy that an overwrite found
  std::string old_version_;   // of an object in a store
  std::optional<staged_output> output_;
};

}  // namespace shardmesh::safetensors
