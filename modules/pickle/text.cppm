// SPDX-License-Identifier: Apache-2.0
// Not exported: the texts of pickle's protocol 0, which other protocols allow too.
module shardmesh.pickle:text;

import shardmesh.std;

namespace shardmesh::pickle {

/// Appends Python's raw-unicode-escape, Latin-1 with \uXXXX and \UXXXXXXXX, as UTF-8. False when an escape is
/// malformed.
bool decode_raw_unicode(std::string_view line, std::string& out);
/// Appends the bytes of a quoted Python 2 string, its repr(). False when quotes or escapes are malformed.
bool decode_string_repr(std::string_view line, std::string& out);
/// Digits with or without a sign.
bool is_integer_text(std::string_view digits);

}  // namespace shardmesh::pickle
