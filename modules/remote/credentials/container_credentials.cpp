// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_context;
import :endpoint_url;
import :json_members;
import :secret_file;
import :server_credentials;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::string_view full_uri = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
constexpr std::string_view relative_uri = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
constexpr std::int64_t most_token_bytes = std::int64_t{64} << 10;
constexpr int attempts = 3;

struct container_endpoint {
  std::string url;
  std::string name;  // for messages: without the path, which can hold a secret
};

result<std::optional<container_endpoint>> find_endpoint(const environment& variables) {
  if (const std::string_view path = variables.variable(relative_uri); !path.empty()) {
    // "@host/" would turn the agent's address into a user name.
    if (!path.starts_with('/'))
      return fail(errc::invalid_argument, fmt::format("{} does not begin with '/'", relative_uri))
          .with_hint("set a path, or AWS_CONTAINER_CREDENTIALS_FULL_URI");
    SHARDMESH_TRY(const endpoint_url url,
                  parse_endpoint_url(fmt::format("http://169.254.170.2{}", path), relative_uri));
    return std::optional(container_endpoint{url.origin() + url.rest, url.origin()});
  }
  const std::string_view whole = variables.variable(full_uri);
  if (whole.empty()) return std::optional<container_endpoint>{};
  SHARDMESH_TRY(const endpoint_url url, parse_endpoint_url(whole, full_uri));
  constexpr std::array<std::string_view, 3> agents{"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
  if (url.scheme != "https" && !is_loopback(url.host) &&
      std::find(agents.begin(), agents.end(), url.host) == agents.end())
    return fail(errc::invalid_argument, fmt::format("{} has a host that must not see the token over http", full_uri))
        .with_values("https, a loopback address, 169.254.170.2, 169.254.170.23, or fd00:ec2::23", url.origin())
        .with_hint("use https://");
  return std::optional(container_endpoint{url.origin() + url.rest, url.origin()});
}

// The token of the header Authorization; empty if there is none.
result<secret> find_token(const environment& variables) {
  constexpr const char* file_variable = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
  secret made(variables.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
  std::string source = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
  if (const std::string_view file = variables.variable(file_variable); !file.empty()) {
    SHARDMESH_TRY(const secret text, read_secret_file(variables.expanded(file), most_token_bytes));
    made = secret(trimmed(text.reveal()));
    source = file_variable;
  }
  const std::string_view text = made.reveal();
  if (std::any_of(text.begin(), text.end(), is_control))
    return fail(errc::invalid_argument,
                fmt::format("the token of {} has a line break or another control character", source));
  return made;
}

}  // namespace

result<std::optional<aws_credentials>> container_credentials(const credential_context& context) {
  SHARDMESH_TRY(const std::optional<container_endpoint> endpoint, find_endpoint(context.variables));
  if (!endpoint) return std::optional<aws_credentials>{};
  SHARDMESH_TRY(const secret token, find_token(context.variables));
  const std::string what = fmt::format("the container endpoint {}", endpoint->name);
  http_call_request request;
  request.url = endpoint->url;
  request.headers.emplace_back("accept", "application/json");
  if (!token.empty()) request.headers.emplace_back("authorization", std::string(token.reveal()));
  request.timeout = std::chrono::seconds(2);
  result<http_call_response> response = ask(context, request, what);
  for (int attempt = 1; attempt < attempts; ++attempt) {
    const bool failed = response ? response->status >= 500 : !is_limit(response.error());
    if (!failed) break;
    response = ask(context, request, what);
  }
  if (!response) return std::move(response).error();
  if (response->status != 200) return refused_response(what, *response, "");
  const auto members = json_members(response->body, "", fmt::format("the answer of {}", what));
  wipe(response->body);
  if (!members) return members.error();
  SHARDMESH_TRY(aws_credentials made, credentials_of(*members, {}, fmt::format("the answer of {}", what)));
  made.source = fmt::format("container endpoint {}", endpoint->name);
  return std::optional(std::move(made));
}

}  // namespace shardmesh::remote
