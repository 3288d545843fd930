// SPDX-License-Identifier: Apache-2.0
// Reads and writes objects.json: the objects beside files that hold only tensors.
export module shardmesh.safetensors:objects_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;

export namespace shardmesh::safetensors {

/// The __metadata__ key under which a single safetensors file also holds the document. One rename then publishes the
/// new tensors together with the new objects. NAME.objects.json beside the file is a copy for people and other tools.
inline constexpr std::string_view embedded_objects_key = "shardmesh.objects";

/// One object of the file.
struct stored_object {
  std::string key;
  path where;
  object_value value;
};

/// The content of a document.
struct stored_objects {
  std::vector<stored_object> objects;
  std::vector<std::pair<std::string, path>> tensor_paths;  // paths of the tensors whose keys are not their paths
};

/// Returns errc::unsupported for each object whose name, or a name inside its nested path, is not UTF-8. No document
/// can hold such objects.
std::vector<error> problems_of_names(std::span<const output_object> objects);

/// Lists, as lines for the user, the objects that a document would not hold whole (opaque types; tensors inside).
/// \errors those of reading the objects.
result<std::vector<std::string>> objects_not_held_whole(std::span<const output_object> objects);

/// Formats the document:
/// {"format":"shardmesh objects 1","xxh3":DIGITS,"objects":{KEY:{"path":[..],"kind","type","value"}},
/// "tensors":{KEY:[..]}}.
/// "tensors" has the nested paths of those `tensors` that have one, so that a reader can nest objects and tensors
/// together again. DIGITS is the XXH3-128 of the document with zeros in their place, so `verify` finds any change.
/// \errors those of reading the objects.
result<std::string> format_objects(std::span<const output_object> objects, std::span<const output_tensor> tensors);

/// Reads a document that `format_objects` made, and checks every value: its kind is known and matches the value, and
/// its tags are well-formed (docs/formats.md). Linear, no recursion.
/// \errors errc::bad_format, naming the key and the defect of its value; errc::duplicate_key; errc::checksum_mismatch
result<stored_objects> parse_objects(std::string_view text);

/// Returns true for a file that `format_objects` made, whole or damaged; false when it cannot be read.
bool is_objects_file(const std::filesystem::path& file);

}  // namespace shardmesh::safetensors
