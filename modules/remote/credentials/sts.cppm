// SPDX-License-Identifier: Apache-2.0
// Not exported: temporary credentials of a role, from AWS STS.
module shardmesh.remote:sts;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :credential_context;
import :secret;

namespace shardmesh::remote {

// The role that a program assumes.
struct role_request {
  std::string arn{};
  std::string session_name{};  // empty: one is made
  std::string external_id{};   // empty: none
  std::string duration{};      // seconds; empty: an hour
};

// Assumes a role with other credentials (AssumeRole). The source of the result names the role and the source of `by`.
// \errors errc::io with STS's code and message; errc::bad_format; those of `ask`
result<aws_credentials> assume_role(const credential_context& context, const role_request& role,
                                    const aws_credentials& by);

// Assumes a role with an OpenID Connect token (AssumeRoleWithWebIdentity), which is in a file.
// \errors the same; errc::io when the file cannot be read
result<aws_credentials> assume_role_with_token(const credential_context& context, const role_request& role,
                                               std::string_view token_file);

}  // namespace shardmesh::remote
