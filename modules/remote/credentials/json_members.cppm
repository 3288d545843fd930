// SPDX-License-Identifier: Apache-2.0
// Not exported: credentials in JSON, as programs and servers write them.
module shardmesh.remote:json_members;

import shardmesh.std;
import shardmesh.core;
import :aws_credentials;
import :secret;

namespace shardmesh::remote {

// The texts and numbers of a JSON object by name. Other members are left out.
using secret_members = std::map<std::string, secret, std::less<>>;

// Parses a JSON object, or the object `inner` in it. `what` names the text in errors, which show nothing of it.
// \errors errc::bad_format
result<secret_members> json_members(std::string_view text, std::string_view inner, std::string_view what);

// Returns a member, or "" for a missing one.
std::string_view member(const secret_members& members, std::string_view name) noexcept;

// The names of the members of credentials.
struct credential_names {
  std::string_view access_key = "AccessKeyId", secret_key = "SecretAccessKey", session_token = "Token";
  std::string_view expiration = "Expiration";
};

// Makes credentials without a source. The session token and the expiration may be missing.
// \errors errc::bad_format, which names the missing member, or the malformed time
result<aws_credentials> credentials_of(const secret_members& members, const credential_names& names,
                                       std::string_view what);

}  // namespace shardmesh::remote
