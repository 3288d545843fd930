// SPDX-License-Identifier: Apache-2.0
// Not exported: decodes the texts of pickle's protocol 0, which other protocols also allow.
module shardmesh.pickle:text;

import shardmesh.std;

namespace shardmesh::pickle {

/// Appends the UTF-8 of Python's raw-unicode-escape: Latin-1 with \uXXXX and \UXXXXXXXX. Returns false for a malformed
/// escape.
bool decode_raw_unicode(std::string_view line, std::string& out);
/// Appends the bytes of a quoted Python 2 string, its repr(). Returns false when quotes or escapes are malformed.
bool decode_string_repr(std::string_view line, std::string& out);
/// Returns true for digits with or without a sign.
bool is_integer_text(std::string_view digits);

}  // namespace shardmesh::pickle
