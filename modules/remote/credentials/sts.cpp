// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
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
import :sts;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::string_view what = "AWS STS";
constexpr std::int64_t most_token_bytes = std::int64_t{64} << 10;

// Replaces the five entities of XML.
std::string unescaped(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> entities{
      {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
  std::string made;
  while (!text.empty()) {
    const auto entity =
        std::find_if(entities.begin(), entities.end(), [&](const auto& one) { return text.starts_with(one.first); });
    made += entity == entities.end() ? text.front() : entity->second;
    text.remove_prefix(entity == entities.end() ? 1 : entity->first.size());
  }
  return made;
}

// The text of the first element of this name; empty if there is none. STS's answers have no attributes and no CDATA.
secret element_text(std::string_view xml, std::string_view name) {
  const std::string begin = fmt::format("<{}>", name), end = fmt::format("</{}>", name);
  const std::size_t at = xml.find(begin);
  if (at == std::string_view::npos) return {};
  xml.remove_prefix(at + begin.size());
  const std::size_t length = xml.find(end);
  if (length == std::string_view::npos) return {};
  std::string text = unescaped(trimmed(xml.substr(0, length)));
  secret made(text);
  wipe(text);
  return made;
}

// STS's reason for a refusal, without the secrets of the request: the message about a wrong signature quotes its
// headers.
std::string reason_of(std::string_view xml, const aws_credentials* by, const secret& token) {
  std::string reason = fmt::format("{}: {}", element_text(xml, "Code").reveal(), element_text(xml, "Message").reveal());
  std::string encoded = encode_component(token.reveal());  // as the request's body has it
  std::vector<std::string_view> hidden{token.reveal(), encoded};
  if (by != nullptr) hidden.insert(hidden.end(), {by->secret_key.reveal(), by->session_token.reveal()});
  reason = without_secrets(std::move(reason), hidden);
  wipe(encoded);
  if (const std::size_t line_end = reason.find('\n'); line_end != std::string::npos) reason.resize(line_end);
  return reason == ": " ? "" : reason;
}

result<name_values> parameters_of(const role_request& role, std::string_view action, wall_time now) {
  name_values made{{"Action", std::string(action)}, {"Version", "2011-06-15"}, {"RoleArn", role.arn}};
  made.emplace_back("RoleSessionName",
                    role.session_name.empty()
                        ? fmt::format("shardmesh-{}",
                                      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count())
                        : role.session_name);
  if (role.duration.empty()) return made;
  if (role.duration.size() > 6 || !std::all_of(role.duration.begin(), role.duration.end(), is_digit))
    return fail(errc::invalid_argument, "the setting duration_seconds is malformed")
        .with_values("a number of seconds", shortened(escaped(role.duration), 40));
  made.emplace_back("DurationSeconds", role.duration);
  return made;
}

// STS's URL and the region that signs its requests.
struct sts_service {
  std::string url, host, path, region;
};

result<sts_service> find_service(const credential_context& context) {
  std::string region = choose_region("", context.variables, context.files, context.profile);
  SHARDMESH_TRY(std::string url, choose_endpoint("sts", "", context.variables, context.files, context.profile));
  if (!region.empty() && !is_region(region))
    return fail(errc::invalid_argument, "the region is malformed")
        .with_values("letters, digits, and '-'", shortened(escaped(region), 40))
        .with_hint("set AWS_REGION, or the profile's region");
  if (url.empty())
    url = region.empty() ? "https://sts.amazonaws.com" : fmt::format("https://sts.{}.{}", region, aws_domain(region));
  SHARDMESH_TRY(const endpoint_url parts, parse_endpoint_url(url, "the STS endpoint"));
  if (parts.rest.find_first_of("?%") != std::string::npos)
    return fail(errc::invalid_argument, "the URL of the STS endpoint has a query or an encoded path");
  const std::string path = parts.rest.empty() ? "/" : parts.rest;
  return sts_service{parts.origin() + path, parts.authority(), path, region.empty() ? "us-east-1" : std::move(region)};
}

// Sends an action, signed by `by` unless it is null. The token, if any, is hidden in messages.
result<aws_credentials> send(const credential_context& context, name_values parameters, const aws_credentials* by,
                             const secret& token) {
  SHARDMESH_TRY(const sts_service service, find_service(context));
  http_call_request request{.method = "POST", .url = service.url, .body = encode_query(parameters)};
  for (auto& [name, value] : parameters) wipe(value);
  const name_values headers{{"host", service.host},
                            {"content-type", "application/x-www-form-urlencoded; charset=utf-8"}};
  if (by == nullptr) {
    request.headers = headers;
  } else {
    SHARDMESH_TRY(request.headers, sign({.method = "POST",
                                         .path = service.path,
                                         .headers = headers,
                                         .payload_hash = sha256::hex_of(bytes_of(request.body))},
                                        {.region = service.region, .service = "sts", .time = context.now}, *by));
  }
  request.timeout = std::chrono::seconds(10);
  SHARDMESH_TRY(http_call_response response, ask(context, std::move(request), what));
  if (response.status != 200) return refused_response(what, response, reason_of(response.body, by, token));
  secret_members members;
  for (const char* const name : {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"})
    members[name] = element_text(response.body, name);
  wipe(response.body);
  return credentials_of(members, {.session_token = "SessionToken"}, "the answer of AWS STS");
}

}  // namespace

result<aws_credentials> assume_role(const credential_context& context, const role_request& role,
                                    const aws_credentials& by) {
  SHARDMESH_TRY(name_values parameters, parameters_of(role, "AssumeRole", context.now));
  if (!role.external_id.empty()) parameters.emplace_back("ExternalId", role.external_id);
  SHARDMESH_TRY(aws_credentials made, send(context, std::move(parameters), &by, {}));
  made.source = fmt::format("role {} taken by {}", shortened(escaped(role.arn), 200), by.source);
  return made;
}

result<aws_credentials> assume_role_with_token(const credential_context& context, const role_request& role,
                                               std::string_view token_file) {
  const std::filesystem::path path = context.variables.expanded(token_file);
  SHARDMESH_TRY(const secret text, read_secret_file(path, most_token_bytes));
  const secret token(trimmed(text.reveal()));
  if (token.empty())
    return fail(errc::bad_format, "the file of the web identity token is empty").with_file(path.string());
  SHARDMESH_TRY(name_values parameters, parameters_of(role, "AssumeRoleWithWebIdentity", context.now));
  parameters.emplace_back("WebIdentityToken", std::string(token.reveal()));
  SHARDMESH_TRY(aws_credentials made, send(context, std::move(parameters), nullptr, token));
  made.source = fmt::format("role {} by the web identity token in {}", shortened(escaped(role.arn), 200),
                            context.variables.shown(path));
  return made;
}

}  // namespace shardmesh::remote
