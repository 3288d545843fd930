// SPDX-License-Identifier: Apache-2.0
// Percent encoding as S3 signs it: each byte once, and nothing normalised.
export module shardmesh.remote:percent_encoding;

import shardmesh.std;

export namespace shardmesh::remote {

/// Names with values, in order: the parameters of a query, or headers. A name can occur several times.
using name_values = std::vector<std::pair<std::string, std::string>>;

/// Replaces each byte except A-Z, a-z, 0-9, "-", ".", "_", and "~" by "%XX" with upper-case digits.
std::string encode_component(std::string_view text);
/// Does the same, but keeps "/". "//", "/./", and "/../" stay as they are, because they are parts of S3 keys.
std::string encode_path(std::string_view path);
/// Encodes parameters as "a=1&b=", sorted by encoded name, then by encoded value. A parameter without a value keeps its
/// "=". Send the query in this form: it is the form that is signed.
std::string encode_query(const name_values& parameters);

}  // namespace shardmesh::remote
