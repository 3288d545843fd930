// SPDX-License-Identifier: Apache-2.0
// Not exported: turns objects of a checkpoint into metadata values. The opposite direction is metadata_value.
module shardmesh.gguf:metadata_encoding;

import shardmesh.std;
import shardmesh.core;
import :header;

namespace shardmesh::gguf {

// Append little-endian numbers and strings as GGUF files hold them.
void append_number(std::string& out, std::uint32_t value);
void append_number(std::string& out, std::uint64_t value);
void append_text(std::string& out, std::string_view text);
// Appends a whole metadata value: its key, its type, and the value.
void append_entry(std::string& out, std::string_view key, std::uint32_t value);
void append_entry(std::string& out, std::string_view key, std::string_view value);

// Returns the type and the value of an object, ready to follow a key. `json` is {"kind","type","value"}. `type` names
// the type as "gguf.value_types" does; if it is empty, or cannot hold the value, the value decides:
// - an integer becomes uint32, or the first of uint64, int32, and int64 that holds it;
// - a float becomes float32 if that holds it exactly, else float64;
// - a list has elements of one such type, except that its integers are int32 if all fit.
// Returns nothing for a value that no metadata can hold: a dict, None, a list of several kinds, an opaque object.
// \errors errc::bad_format for text that is not such JSON
result<std::optional<std::string>> encode_value(std::string_view json, std::string_view type);

// Returns the name of a value's type if `encode_value` would not choose it, such as "uint64" or "[uint8]"; else
// nothing.
std::optional<std::string> unusual_type(const metadata_entry& entry);

}  // namespace shardmesh::gguf
