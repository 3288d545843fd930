// SPDX-License-Identifier: Apache-2.0
// Not exported: the credentials that a profile describes.
module shardmesh.remote:profile_credentials;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :credential_context;

namespace shardmesh::remote {

// The credentials of a profile by the first of these that its settings describe: a role (`role_arn` with
// `source_profile`, `credential_source`, or `web_identity_token_file`), SSO, keys, and `credential_process`. Nothing
// for a missing profile, and for one without such settings.
// \errors errc::invalid_argument for contradictory settings and for profiles that name each other in a circle;
//         errc::unsupported for a role that needs a code of a device (`mfa_serial`); those of the sources
result<std::optional<aws_credentials>> profile_credentials(const credential_context& context, std::string_view profile);

}  // namespace shardmesh::remote
