// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
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
import :server_credentials;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::string_view what = "the metadata service of the EC2 instance";
constexpr std::string_view roles_path = "/latest/meta-data/iam/security-credentials/";

// The metadata service's URL without a path.
result<std::string> find_service(const environment& variables) {
  constexpr const char* variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
  const std::string_view given = variables.variable(variable);
  if (given.empty())
    return std::string(lower(variables.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")) == "ipv6"
                           ? "http://[fd00:ec2::254]"
                           : "http://169.254.169.254");
  SHARDMESH_TRY(const endpoint_url url, parse_endpoint_url(given, variable));
  std::string path = url.rest;
  while (path.ends_with('/')) path.pop_back();
  return url.origin() + path;
}

result<http_call_response> ask_service(const credential_context& context, const std::string& url,
                                       const std::string& token) {
  http_call_request request;
  request.url = url;
  request.timeout = std::chrono::seconds(2);
  if (token.empty()) {
    request.method = "PUT";
    request.headers.emplace_back("x-aws-ec2-metadata-token-ttl-seconds", "21600");
    request.timeout = std::chrono::seconds(1);  // outside of EC2, nothing answers
  } else {
    request.headers.emplace_back("x-aws-ec2-metadata-token", token);
  }
  return ask(context, std::move(request), what);
}

bool is_printable(std::string_view text) {
  return !text.empty() && text.size() <= 4096 && std::none_of(text.begin(), text.end(), is_control);
}

}  // namespace

result<std::optional<aws_credentials>> instance_credentials(const credential_context& context, std::string& why_not) {
  const std::optional<aws_credentials> nothing;
  constexpr const char* disabled = "AWS_EC2_METADATA_DISABLED";
  SHARDMESH_TRY(const bool is_disabled, parse_switch(context.variables.variable(disabled), disabled));
  if (is_disabled) return why_not = fmt::format("{} is true", disabled), nothing;
  SHARDMESH_TRY(const std::string service, find_service(context.variables));

  auto token = ask_service(context, service + "/latest/api/token", "");
  if (!token) {
    if (is_limit(token.error())) return std::move(token).error();
    return why_not = token.error().message, nothing;
  }
  if (token->status != 200 || !is_printable(trimmed(token->body)))
    return why_not = fmt::format("{} gave no token (status {})", what, token->status), nothing;
  const std::string token_text(trimmed(token->body));

  SHARDMESH_TRY(const http_call_response roles,
                ask_service(context, fmt::format("{}{}", service, roles_path), token_text));
  const std::string_view role = trimmed(std::string_view(roles.body).substr(0, roles.body.find('\n')));
  if (roles.status == 404 || (roles.status == 200 && role.empty()))
    return why_not = "the EC2 instance has no role", nothing;
  if (roles.status != 200) return refused_response(what, roles, "");
  if (!is_printable(role)) return fail(errc::bad_format, fmt::format("{} names a malformed role", what));

  SHARDMESH_TRY(http_call_response keys,
                ask_service(context, fmt::format("{}{}{}", service, roles_path, encode_component(role)), token_text));
  if (keys.status != 200) return refused_response(what, keys, "");
  const std::string answer = fmt::format("the answer of {}", what);
  const auto members = json_members(keys.body, "", answer);
  wipe(keys.body);
  if (!members) return members.error();
  const std::string_view code = member(*members, "Code");
  if (!code.empty() && code != "Success")
    return fail(errc::io, fmt::format("{} gave no credentials of the role {}", what, shortened(escaped(role), 100)))
        .with_values("Success", shortened(escaped(code), 100));
  SHARDMESH_TRY(aws_credentials made, credentials_of(*members, {}, answer));
  made.source = fmt::format("role {} of the EC2 instance", shortened(escaped(role), 100));
  return std::optional(std::move(made));
}

}  // namespace shardmesh::remote
