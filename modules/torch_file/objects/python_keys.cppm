// SPDX-License-Identifier: Apache-2.0
// Dict keys that only Python has (None, True, 1.5, tuples, bytes, enum members). In paths, they are pickled steps; this
// partition converts them for formats whose keys are text, and back. Integer keys are in `integer_keys`.
export module shardmesh.torch_file:python_keys;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// Returns the key as JSON (tags as in docs/formats.md); empty when JSON cannot hold the whole key (an enum member, an
/// instance). Precondition: key.is_python().
std::optional<std::string> json_of_key(const path_key& key);
/// Rebuilds the key, with the name `text`. A key whose text only Python can compute gets the name that a .pt file gives
/// it.
/// \errors errc::bad_format; errc::unsupported for keys that are not plain data
result<path_key> key_of_json(std::string_view text, std::string_view json);

/// Returns a note for the user that counts and names the keys that a format does not keep; empty when there are none.
/// `is_lost` selects them among the keys that are neither text nor integers. `to` completes the note: "text in DCP's
/// metadata".
std::optional<std::string> note_of_python_keys(std::span<const output_tensor> tensors,
                                               std::span<const output_object> objects, std::string_view to,
                                               function_ref<bool(const path_key& key)> is_lost);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Longest pickled key to keep. Keys are names, and a hostile long key would be copied into every entry.
inline constexpr std::size_t most_key_bytes = 16384;

// Turns a dict's key into a step of a path: text, an integer, or the pickled key. `unnamed` is its name if only Python
// can compute its text. Empty if the pickle cannot stand alone (a tensor is a key) or is too long.
std::optional<path_key> step_of(const pickle::value& key, std::string_view unnamed);

// Returns whether Python's str() of the key is known. Cost: that of the text.
bool has_name(const pickle::value& key);

// Makes a step of a pickled key whose str() needs Python. Its name is "#" and a digest of the key's JSON, in which sets
// are sorted, or of the pickle if JSON cannot hold the whole key.
path_key marked_key(std::string_view pickled);

}  // namespace shardmesh::torch_file
