// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :environment_credentials;

namespace shardmesh::remote {

result<std::optional<aws_credentials>> environment_credentials(const environment& variables) {
  const std::string_view access_key = variables.variable("AWS_ACCESS_KEY_ID");
  const std::string_view secret_key = variables.variable("AWS_SECRET_ACCESS_KEY");
  if (access_key.empty() && secret_key.empty()) return std::optional<aws_credentials>{};
  if (access_key.empty() || secret_key.empty())
    return fail(errc::invalid_argument, fmt::format("{} is set, but {} is not",
                                                    access_key.empty() ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID",
                                                    access_key.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"))
        .with_hint("set both, or none");
  aws_credentials made;
  made.access_key = access_key;
  made.secret_key = secret(secret_key);
  made.session_token = secret(variables.variable("AWS_SESSION_TOKEN"));
  made.source = "environment";
  if (const std::string_view text = variables.variable("AWS_CREDENTIAL_EXPIRATION"); !text.empty()) {
    made.expires = parse_utc_time(text);
    if (!made.expires)
      return fail(errc::invalid_argument, "the time in AWS_CREDENTIAL_EXPIRATION is malformed")
          .with_values("a time such as 2026-11-24T10:00:00Z", shortened(escaped(text), 40));
  }
  return std::optional<aws_credentials>(std::move(made));
}

}  // namespace shardmesh::remote
