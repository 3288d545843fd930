// SPDX-License-Identifier: Apache-2.0
// Not exported: credentials of a profile that signs in with IAM Identity Center (SSO).
module shardmesh.remote:sso_credentials;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :credential_context;

namespace shardmesh::remote {

// Returns whether a profile signs in with SSO.
bool uses_sso(const aws_files& files, std::string_view profile);

// Exchanges the token that `aws sso login` cached in ~/.aws/sso/cache for credentials. The token is not renewed: an
// expired one is an error that names the command.
// \errors errc::invalid_argument for missing settings, or a token that is missing or expired; errc::io,
//         errc::bad_format
result<aws_credentials> sso_credentials(const credential_context& context, std::string_view profile);

}  // namespace shardmesh::remote
