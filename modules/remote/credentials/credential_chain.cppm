// SPDX-License-Identifier: Apache-2.0
// find_credentials: the search for credentials in the order of the AWS tools.
export module shardmesh.remote:credential_chain;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :environment;
import :http_call;
import :utc_time;

export namespace shardmesh::remote {

/// Where credentials may come from.
struct credential_sources {
  std::optional<aws_credentials> given{};  // come first
  std::string profile{};                   // empty: AWS_PROFILE, or "default"
  bool is_anonymous = false;               // no request is signed, as with `aws --no-sign-request`
  environment variables = process_environment();
  http_call call{};                    // empty: sources that ask a server fail
  std::function<wall_time()> clock{};  // empty: the system's; called by several threads
};

/// Finds credentials. The first source that is configured counts; if it fails, the search ends with its error:
///
/// 1. none if `is_anonymous`, else `given`, else none if SHARDMESH_S3_ANONYMOUS is true
/// 2. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, unless `profile` is given
/// 3. the role in AWS_ROLE_ARN with the token in AWS_WEB_IDENTITY_TOKEN_FILE, unless `profile` is given
/// 4. the profile in ~/.aws/credentials and ~/.aws/config: a role, SSO, keys, or `credential_process`
/// 5. the agent of an ECS or EKS container
/// 6. the metadata service of an EC2 instance (IMDSv2).
///
/// No error and no `to_string` shows a secret.
/// \errors errc::invalid_argument if no source has credentials, with the reason of each, or if a named profile is
///         missing; errc::cancelled, errc::deadline_exceeded; those of the source
/// Cost: at most the requests of one source, and a request that outside of EC2 fails within a second.
result<aws_credentials> find_credentials(const credential_sources& sources, const call_options& call = {});

}  // namespace shardmesh::remote
