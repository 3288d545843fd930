// SPDX-License-Identifier: Apache-2.0
// Text for people: escaping of untrusted names, and amounts of bytes.
export module shardmesh.core:text;

import shardmesh.std;

export namespace shardmesh {

/// `text` for a terminal: control characters (C0, DEL, C1), what is invisible or reorders a line (format characters,
/// bidirectional and zero-width ones, separators, variation selectors, tags) and bytes that are not UTF-8 as \n, \t,
/// \r or \xNN, byte by byte.
std::string escaped(std::string_view text);
/// `text` as a JSON string, with its quotes: always valid JSON. What `escaped` would not print is \uNNNN. Bytes that
/// are not UTF-8 become lone surrogates, as Python's surrogateescape does (0xFF is "\\udcff"), so that every byte
/// string has a spelling of its own.
std::string json_quoted(std::string_view text);
/// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);
/// "1.5 MiB", "12 bytes".
std::string human_bytes(std::int64_t size_bytes);
/// "64MiB", "1GiB", "1.5G", "1000", "2GB": binary and decimal units; nothing when it is not an amount.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace shardmesh
