// SPDX-License-Identifier: Apache-2.0
// The store of the hub over a client that other stores share. Internal to `remote`.
module shardmesh.remote:hf_store_parts;

import shardmesh.std;
import shardmesh.storage;
import :hf_store;
import :process_client;

namespace shardmesh::remote {

std::shared_ptr<const store> make_hf_store_over(const hf_options& options,
                                                std::shared_ptr<const process_client> client);

}  // namespace shardmesh::remote
