// SPDX-License-Identifier: Apache-2.0
// Not exported: credentials of the environment.
module shardmesh.remote:environment_credentials;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :environment;

namespace shardmesh::remote {

// The keys in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, and AWS_CREDENTIAL_EXPIRATION; nothing if
// the first two are not set.
// \errors errc::invalid_argument if one of the two is not set, or the time is malformed
result<std::optional<aws_credentials>> environment_credentials(const environment& variables);

}  // namespace shardmesh::remote
