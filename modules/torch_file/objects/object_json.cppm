// SPDX-License-Identifier: Apache-2.0
// Prints a pickled Python object as JSON, with tags for values that JSON lacks ($tuple, $bytes, $float, ...).
// docs/formats.md describes the tags.
export module shardmesh.torch_file:object_json;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

struct object_json_options {
  /// Largest text to produce. Shared references are printed each time, so a hostile object could be huge.
  std::int64_t limit_bytes = std::int64_t{1} << 28;
  /// Largest storage to read, and largest tensor to resolve, for a digest.
  std::int64_t tensor_limit_bytes = std::int64_t{1} << 32;
  /// Deepest nesting; JSON parsers refuse deeper text.
  int max_depth = 200;
  /// The budget of the object's checkpoint, charged for the printed text. Null leaves `limit_bytes` as the only limit.
  read_budget* budget = nullptr;
};

/// Prints an object as one line of valid JSON. `source` has the item's bytes, from which tensors inside the object are
/// read for their SHA-256. Integers beyond ±2^53 are {"$int": digits}; floats {"$float": hexadecimal, "inf", "-inf" or
/// "nan"}; strings with lone surrogates {"$str": hexadecimal UTF-8}; an object inside itself {"$ref": levels up}.
/// Values that are not plain data are {"$other": type name}. If their content is known, further members follow: "range"
/// for a range; "dtype", "shape" and "data" for numpy's arrays and scalars; "name" for a global.
/// \errors errc::unsupported beyond the limits; errors of reading tensors
result<std::string> object_json(const byte_source& source, const torch_file::item& item, const pickle::value& value,
                                const object_json_options& options = {});

/// Returns whether JSON from `object_json` holds the whole object, so that `archive_from_json` can rebuild it.
/// Cost: O(text).
bool is_whole_json(std::string_view json);
/// Returns whether JSON from `object_json` has a type's name in place of an unknown value. Cost: O(text).
bool has_unknown_values(std::string_view json);
/// Returns whether JSON from `object_json` is an empty dict or OrderedDict.
bool is_empty_dict(std::string_view json);

/// Formats like Python's float.hex(): "0x1.8000000000000p+1", "inf", "-inf", "nan".
std::string float_hex(double value);

}  // namespace shardmesh::torch_file
