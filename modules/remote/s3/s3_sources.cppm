// SPDX-License-Identifier: Apache-2.0
// Not exported: where the settings and the credentials of a store come from.
module shardmesh.remote:s3_sources;

import shardmesh.std;
import :s3_connection;
import :s3_store;

namespace shardmesh::remote {

// The sources read the environment now, and files and servers at the first request. For the scheme "gs", the endpoint
// is Google's unless another one is set.
s3_sources find_s3_sources(const s3_options& options, const std::string& scheme);

}  // namespace shardmesh::remote
