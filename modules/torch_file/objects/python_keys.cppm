// SPDX-License-Identifier: Apache-2.0
// Keys of dicts that only Python has (None, True, 1.5, tuples, bytes, members of enums): pickled steps of a path, on
// their way into formats whose keys are text, and back. Not here: integer keys (integer_keys).
export module shardmesh.torch_file:python_keys;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.catalog;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// The key as JSON in the tags of docs/formats.md; nothing where that does not say all of it (a member of an enum, an
/// instance). Precondition: key.is_python().
std::optional<std::string> json_of_key(const path_key& key);
/// The key again, named `text`; a key that only Python can spell has the name that a .pt file gives it.
/// \errors errc::bad_format, errc::unsupported for what is no plain data.
result<path_key> key_of_json(std::string_view text, std::string_view json);

/// A line for the user that names keys which a format does not keep and counts them; nothing without any.
/// `is_lost`: of the keys that are neither text nor integers; `to`: "text in DCP's metadata".
std::optional<std::string> note_of_python_keys(std::span<const output_tensor> tensors,
                                               std::span<const output_object> objects, std::string_view to,
                                               function_ref<bool(const path_key& key)> is_lost);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// The longest pickle of a key that is kept: keys are names, and a hostile one would be copied for every entry.
inline constexpr std::size_t most_key_bytes = 16384;

// A dict's key as a step of a path: text, an integer, or the pickled key. `unnamed`: its
// name where only Python could spell it. Nothing where the pickle cannot stand alone (a tensor is a key) or is too
// long.
std::optional<path_key> step_of(const pickle::value& key, std::string_view unnamed);

}  // namespace shardmesh::torch_file
