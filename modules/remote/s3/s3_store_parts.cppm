// SPDX-License-Identifier: Apache-2.0
// Not exported: the stores of S3's interface over a client that other stores share.
module shardmesh.remote:s3_store_parts;

import shardmesh.std;
import shardmesh.storage;
import :process_client;
import :s3_store;

namespace shardmesh::remote {

// `scheme` is "s3" or "gs".
std::shared_ptr<const store> make_s3_store_over(std::shared_ptr<const process_client> client, const s3_options& options,
                                                const std::string& scheme);

}  // namespace shardmesh::remote
