// SPDX-License-Identifier: Apache-2.0
// Not exported: the uploads in parts that nobody has finished.
module shardmesh.remote:s3_unfinished;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :s3_connection;

namespace shardmesh::remote {

// Returns those of the object `place`, and of the objects directly in that folder, with the bytes of their parts. Their
// URLs are spelled as `url_of` spells them.
// Cost: a request for each thousand uploads of keys that begin as `place`, and one for each upload that is returned.
result<std::vector<store::unfinished_upload>> find_unfinished(const s3_connection& at, s3_name place);

}  // namespace shardmesh::remote
