// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
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
import :sso_credentials;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::string_view what = "the SSO portal";
constexpr std::int64_t most_cache_bytes = std::int64_t{256} << 10;

// The settings of a sign-in.
struct sso_settings {
  std::string start_url, region, account, role;
  std::string cached_as;  // the text whose SHA-1 names the cached token
};

result<sso_settings> find_settings(const aws_files& files, std::string_view profile) {
  sso_settings made;
  const auto missing = [&](std::string_view name, std::string_view section) {
    return fail(errc::invalid_argument, fmt::format("the {} lacks the setting {}", section, name))
        .with_hint("run aws configure sso");
  };
  made.account = files.setting(profile, "sso_account_id");
  made.role = files.setting(profile, "sso_role_name");
  made.start_url = files.setting(profile, "sso_start_url");
  made.region = files.setting(profile, "sso_region");
  made.cached_as = made.start_url;
  std::string section = fmt::format("profile {}", profile);
  if (made.account.empty()) return missing("sso_account_id", section);
  if (made.role.empty()) return missing("sso_role_name", section);
  if (const std::string_view session = files.setting(profile, "sso_session"); !session.empty()) {
    section = fmt::format("section [sso-session {}]", session);
    const auto at = files.sso_sessions.find(session);
    if (at == files.sso_sessions.end())
      return fail(errc::invalid_argument, fmt::format("the {} is missing", section))
          .with_file(files.place(profile, "sso_session"))
          .with_hint("run aws configure sso-session");
    const auto setting = [&](std::string_view name) {
      const auto found = at->second.find(name);
      return found == at->second.end() ? std::string{} : std::string(found->second.value.reveal());
    };
    made.start_url = setting("sso_start_url");
    made.region = setting("sso_region");
    made.cached_as = session;
  }
  if (made.start_url.empty()) return missing("sso_start_url", section);
  if (made.region.empty()) return missing("sso_region", section);
  // The region becomes a part of the host.
  if (!is_region(made.region))
    return fail(errc::invalid_argument, fmt::format("the setting sso_region of the {} is malformed", section))
        .with_values("letters, digits, and '-'", shortened(escaped(made.region), 40));
  return made;
}

// The access token that the AWS command line cached.
result<secret> cached_token(const credential_context& context, const sso_settings& settings, std::string_view profile) {
  const std::string hint = fmt::format("run aws sso login --profile {}", profile);
  const std::filesystem::path path =
      context.variables.expanded(fmt::format("~/.aws/sso/cache/{}.json", sha1_hex(bytes_of(settings.cached_as))));
  auto text = read_secret_file(path, most_cache_bytes);
  if (!text && text.error().sys == ENOENT)
    return fail(errc::invalid_argument, fmt::format("the profile {} is not signed in", profile)).with_hint(hint);
  if (!text) return std::move(text).error();
  SHARDMESH_TRY(const secret_members members,
                json_members(text->reveal(), "", fmt::format("the cached token {}", context.variables.shown(path))));
  const std::optional<wall_time> expires = parse_utc_time(member(members, "expiresAt"));
  secret token(member(members, "accessToken"));
  const std::string_view shown = token.reveal();
  if (shown.empty() || !expires || std::any_of(shown.begin(), shown.end(), is_control))
    return fail(errc::bad_format, "the cached token of SSO is malformed")
        .with_file(path.string())
        .with_values("the members accessToken and expiresAt", "other members")
        .with_hint(hint);
  if (*expires <= context.now)
    return fail(errc::invalid_argument,
                fmt::format("the sign-in of the profile {} expired at {}", profile, readable_utc_time(*expires)))
        .with_hint(hint);
  return token;
}

}  // namespace

bool uses_sso(const aws_files& files, std::string_view profile) {
  return !files.setting(profile, "sso_session").empty() || !files.setting(profile, "sso_start_url").empty();
}

result<aws_credentials> sso_credentials(const credential_context& context, std::string_view profile) {
  SHARDMESH_TRY(const sso_settings settings, find_settings(context.files, profile));
  SHARDMESH_TRY(const secret token, cached_token(context, settings, profile));
  SHARDMESH_TRY(std::string url, choose_endpoint("sso", "", context.variables, context.files, context.profile));
  if (url.empty()) url = fmt::format("https://portal.sso.{}.{}", settings.region, aws_domain(settings.region));
  SHARDMESH_TRY(const endpoint_url parts, parse_endpoint_url(url, "the SSO endpoint"));
  http_call_request request;
  request.url = fmt::format("{}/federation/credentials?{}", parts.origin(),
                            encode_query({{"account_id", settings.account}, {"role_name", settings.role}}));
  request.headers.emplace_back("x-amz-sso_bearer_token", std::string(token.reveal()));
  request.timeout = std::chrono::seconds(10);
  SHARDMESH_TRY(http_call_response response, ask(context, std::move(request), what));
  if (response.status == 401)
    return refused_response(what, response, "the sign-in is no longer valid")
        .with_hint(fmt::format("run aws sso login --profile {}", profile));
  if (response.status != 200) return refused_response(what, response, "");
  auto members = json_members(response.body, "roleCredentials", "the answer of the SSO portal");
  wipe(response.body);
  if (!members) return std::move(members).error();
  // The portal counts milliseconds since 1970.
  const std::string_view milliseconds = member(*members, "expiration");
  if (milliseconds.empty() || milliseconds.size() > 18 ||
      !std::all_of(milliseconds.begin(), milliseconds.end(), is_digit))
    return fail(errc::bad_format, "the answer of the SSO portal has a malformed expiration")
        .with_values("a number of milliseconds", shortened(escaped(milliseconds), 40));
  constexpr long long most = 9'000'000'000'000;  // in the year 2255; the clock's nanoseconds end in 2262
  const wall_time expires =
      wall_time{} + std::chrono::milliseconds(std::min(std::stoll(std::string(milliseconds)), most));
  SHARDMESH_TRY(aws_credentials made, credentials_of(*members,
                                                     {.access_key = "accessKeyId",
                                                      .secret_key = "secretAccessKey",
                                                      .session_token = "sessionToken",
                                                      .expiration = ""},
                                                     "the answer of the SSO portal"));
  made.expires = expires;
  made.source = fmt::format("SSO of profile {}", profile);
  return made;
}

}  // namespace shardmesh::remote
