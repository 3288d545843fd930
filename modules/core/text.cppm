// SPDX-License-Identifier: Apache-2.0
// Text for people: escaped and shortened untrusted names, and amounts of bytes.
export module shardmesh.core:text;

import shardmesh.std;

export namespace shardmesh {

/// Makes `text` safe for a terminal. Escapes control characters (C0, DEL, C1), bytes that are not UTF-8, and characters
/// that are invisible or reorder a line (format, bidirectional, and zero-width characters, separators, variation
/// selectors, tags). The escapes are \n, \t, \r, or one \xNN per byte.
std::string escaped(std::string_view text);
/// Shortens `text` to at most `most` characters (code points of well-formed UTF-8, as `escaped` returns it). A longer
/// text keeps its beginning and twice as much of its end, with "..." between them: the keys of a model begin alike and
/// differ at their ends. Cost: O(size of text).
std::string shortened(std::string_view text, std::size_t most);
/// Quotes `text` as a JSON string that is always valid. Characters that `escaped` would replace become \uNNNN. Each
/// byte that is not UTF-8 becomes a lone surrogate, as in Python's surrogateescape (0xFF is "\\udcff"). A surrogate
/// that is encoded in three bytes becomes its own \uNNNN.
std::string json_quoted(std::string_view text);
/// Returns whether `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);
/// Returns whether `text` is a str of Python as pickle spells it: UTF-8 in which a lone surrogate takes three bytes
/// ("surrogatepass").
bool is_python_text(std::string_view text);
/// Returns a URL (SCHEME://...) without its user information and query, which may hold secrets. Returns any other text,
/// such as a local path, unchanged. Every `error::file` has this form.
std::string printable_url(std::string_view url);
/// Formats a number of bytes: "1.5 MiB", "12 bytes".
std::string human_bytes(std::int64_t size_bytes);
/// Parses "64MiB", "1GiB", "1.5G", "1000", or "2GB", in binary or decimal units. Returns nothing for other text.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace shardmesh
