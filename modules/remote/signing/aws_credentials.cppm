// SPDX-License-Identifier: Apache-2.0
// aws_credentials: the keys that sign requests.
export module shardmesh.remote:aws_credentials;

import shardmesh.std;
import :secret;
import :utc_time;

export namespace shardmesh::remote {

/// The keys that sign requests to S3 and to servers that follow it. Google Cloud Storage's HMAC keys are such keys.
/// Without an access key, requests are anonymous.
struct aws_credentials {
  std::string access_key{};
  secret secret_key{};
  secret session_token{};  // of temporary credentials
  std::optional<wall_time> expires{};
  std::string source{};  // for messages: "environment", "profile dev in ~/.aws/credentials"

  bool is_anonymous() const noexcept { return access_key.empty(); }

  friend bool operator==(const aws_credentials&, const aws_credentials&) = default;
};

/// Describes credentials without secrets: "the access key ending in MPLE (environment)".
std::string to_string(const aws_credentials& credentials);

}  // namespace shardmesh::remote
