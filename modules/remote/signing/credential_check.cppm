// SPDX-License-Identifier: Apache-2.0
// Not exported: the check of credentials before they are used.
module shardmesh.remote:credential_check;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;

namespace shardmesh::remote {

// Fails for credentials that would break a header, or that lack the secret key: errc::invalid_argument, which names the
// source and no secret. Anonymous credentials pass.
result<void> check_credentials(const aws_credentials& credentials);

}  // namespace shardmesh::remote
