// SPDX-License-Identifier: Apache-2.0
// Not exported: reads metadata values, as JSON with the tags of docs/formats.md. header finds their places; the
// opposite direction is metadata_encoding.
module shardmesh.gguf:metadata_value;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :cursor;
import :header;

namespace shardmesh::gguf {

// The deepest nesting of arrays. Real files have no arrays in arrays.
inline constexpr int max_array_depth = 16;

// Returns the bytes of a number; 0 for strings and arrays.
std::int64_t value_bytes(value_type type);
// Returns the name in "gguf.value_types": "uint32", "string".
std::string_view value_name(value_type type);

// The type and number of an array's elements.
struct array_head {
  value_type elements = value_type::uint8;
  std::int64_t count = 0;
};

// \errors errc::bad_format for an unknown type; those of the cursor, also of the functions below
result<value_type> read_value_type(cursor& at);
// Skips a value of this type, and returns the head of an array.
result<array_head> skip_value(cursor& at, value_type type, int depth);

// Returns an unsigned number; nothing when the value is of another type, or negative.
result<std::optional<std::uint64_t>> read_unsigned(const byte_source& source, const metadata_entry& entry);
// Returns the bytes of a string. Precondition: the value is a string.
result<std::string> read_string(const byte_source& source, const metadata_entry& entry, const read_limits& limits);
// Reads a value. Strings that are not UTF-8 become bytes.
result<object_value> read_value(const byte_source& source, const metadata_entry& entry, const read_limits& limits);

}  // namespace shardmesh::gguf
