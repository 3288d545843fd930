// SPDX-License-Identifier: Apache-2.0
// objects.json: what is not a tensor, beside files that hold only tensors.
export module shardmesh.safetensors:objects_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.catalog;

export namespace shardmesh::safetensors {

/// A single safetensors file holds the document in its own header too, under this __metadata__ key: so the one rename
/// that shows the new tensors shows the new objects. NAME.objects.json beside it is a copy for people and other tools.
inline constexpr std::string_view embedded_objects_key = "shardmesh.objects";

/// One object of the file.
struct stored_object {
  std::string key;
  path where;
  object_value value;
};

/// What a document holds.
struct stored_objects {
  std::vector<stored_object> objects;
  std::vector<std::pair<std::string, path>> tensor_paths;  // of the tensors beside whose keys are not their paths
};

/// The objects whose names, or names inside their nested paths, are not UTF-8: no document can hold them.
/// errc::unsupported, one per object.
std::vector<error> problems_of_names(std::span<const output_object> objects);

/// Which of the objects such a document would not hold whole (opaque types; tensors inside), as lines for the user.
/// \errors those of reading the objects.
result<std::vector<std::string>> objects_not_held_whole(std::span<const output_object> objects);

/// The document: {"format":"shardmesh objects 1","xxh3":DIGITS,"objects":{KEY:{"path":[..],"kind","type","value"}}},
/// and "tensors":{KEY:[..]} with the nested paths of those `tensors` that have one, for what nests objects and tensors
/// together again. DIGITS is the XXH3-128 of the document with zeros in their place, so that `verify` finds any change.
/// \errors those of reading the objects.
result<std::string> format_objects(std::span<const output_object> objects, std::span<const output_tensor> tensors);

/// What a document that `format_objects` made holds, every value checked: its kind is known and is that of the
/// value, its tags are well-formed (docs/formats.md). Linear, no recursion.
/// \errors errc::bad_format, naming the key and what is wrong with its value; errc::duplicate_key;
///         errc::checksum_mismatch
result<stored_objects> parse_objects(std::string_view text);

/// `file` is one that `format_objects` made, whole or damaged. False when it cannot be read.
bool is_objects_file(const std::filesystem::path& file);

}  // namespace shardmesh::safetensors
