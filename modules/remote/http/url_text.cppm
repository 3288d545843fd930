// SPDX-License-Identifier: Apache-2.0
// Texts of URLs: encoding, parts, and redirects. Internal to `remote`.
module shardmesh.remote:url_text;

import shardmesh.std;

namespace shardmesh::remote {

// Encodes the characters that no URL may contain, also "%" without two hexadecimal digits, and "#", because objects
// have no fragments. Characters that the user has encoded stay encoded.
std::string encoded_url(std::string_view url);
// Decodes %41 to A.
std::string decoded(std::string_view text);

// Returns whether a name reads as itself in the path of a URL: it has no "?", and no "%41" that would be "A".
bool is_literal_name(std::string_view name);

// Returns whether an encoded part of the path leads up, such as "%2e%2e" and "..%2Fname", which servers decode.
bool leads_up_encoded(std::string_view url);

// Returns "scheme://host:port" in lower case: two URLs with equal origins lead to one server.
std::string origin_of(std::string_view url);
// Returns the absolute URL of a redirect's `Location`.
std::string redirected(std::string_view from, std::string_view location);
// Returns the last part of the path, decoded. Empty for a URL without a path.
std::string last_part(std::string_view url);
// Returns whether the path ends with "/", or is empty.
bool is_folder_url(std::string_view url);
// Returns the URL of a folder's member, or of the folder itself with "/" at its end when `name` is empty. A query stays
// at the end.
std::string member_url(std::string_view folder, std::string_view name);

}  // namespace shardmesh::remote
