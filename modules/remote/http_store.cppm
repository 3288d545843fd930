// SPDX-License-Identifier: Apache-2.0
// http_store: files of a web server as a store that is only read.
export module shardmesh.remote:http_store;

import shardmesh.std;
import shardmesh.storage;
import :http_client;

export namespace shardmesh::remote {

/// Makes the store of the schemes http and https. An object is a file that the server describes (HEAD, or a range of
/// one byte where HEAD is refused), and its version is its ETag. A folder is a URL that the server redirects to one
/// with "/" at its end, or one that has a file with a well-known name of a checkpoint. A listing is nginx's autoindex
/// in JSON. The query of a URL, such as a presigned one's signature, is sent and never shown.
std::shared_ptr<const store> make_http_store(const http_options& options = {});

}  // namespace shardmesh::remote
