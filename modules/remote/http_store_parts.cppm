// SPDX-License-Identifier: Apache-2.0
// Answers of web servers as descriptions of objects and folders, and the store over a shared client. Internal to
// `remote`.
module shardmesh.remote:http_store_parts;

import shardmesh.std;
import shardmesh.storage;
import :http_client;
import :process_client;

namespace shardmesh::remote {

// Describes an answer to HEAD, or to GET of the first byte. Nothing: the server has no such object.
// \errors errc::io when access is refused, errc::unsupported when the size is not stated
result<std::optional<stored_object>> described(const http_response& answer, const std::string& url);

// Parses a listing of nginx's autoindex in JSON, ascending by name.
// \errors errc::unsupported for another document, errc::bad_format for a name that leaves the folder
result<std::vector<stored_object>> parse_autoindex(std::string_view text, const std::string& url);

// Makes the store over a client that other stores share.
std::shared_ptr<const store> make_http_store_over(std::shared_ptr<const process_client> client);

}  // namespace shardmesh::remote
