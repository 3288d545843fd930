// SPDX-License-Identifier: Apache-2.0
// object_json: a pickled Python object as JSON, with tags for what JSON lacks ($tuple, $bytes, $float ...).
// The tags are those of the golden data's README.
export module shardmesh.torch_file:object_json;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

struct object_json_options {
  /// Largest text produced; shared references are printed again each time, so a hostile object could be huge.
  std::int64_t limit_bytes = std::int64_t{1} << 28;
  /// Largest storage that is read, and largest tensor that is resolved, for a digest.
  std::int64_t tensor_limit_bytes = std::int64_t{1} << 32;
  /// Deepest nesting: JSON parsers refuse more.
  int max_depth = 200;
  /// Of the checkpoint that the object belongs to: what is printed is built. Null: `limit_bytes` alone.
  read_budget* budget = nullptr;
};

/// One line of valid JSON. `source` is the item's bytes (tensors inside the object are read for their SHA-256).
/// Integers beyond ±2^53 are {"$int": digits}; floats {"$float": hexadecimal, "inf", "-inf" or "nan"}; strings with
/// lone surrogates {"$str": hexadecimal UTF-8}; what is not plain data {"$other": type name}, with further members
/// where we know its value: "range" of a range, "dtype", "shape" and "data" of numpy's arrays and scalars, "name" of a
/// global; an object inside itself {"$ref": levels up}.
/// \errors errc::unsupported beyond the limits; errors of reading tensors
result<std::string> object_json(const byte_source& source, const torch_file::item& item, const pickle::value& value,
                                const object_json_options& options = {});

/// What `object_json` printed says all of the object: `archive_from_json` can make it again. Cost: O(text).
bool is_whole_json(std::string_view json);
/// What `object_json` printed has a type's name in the place of a value that we do not know. Cost: O(text).
bool has_unknown_values(std::string_view json);
/// What `object_json` printed is a dict or an ordered one without entries.
bool is_empty_dict(std::string_view json);

/// Python's float.hex(): "0x1.8000000000000p+1", "inf", "-inf", "nan".
std::string float_hex(double value);

}  // namespace shardmesh::torch_file
