// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_check;
import :text_parts;

namespace shardmesh::remote {
namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";

// Trims a header's value, and replaces each run of spaces and tabs by one space.
std::string collapsed(std::string_view value) {
  std::string made;
  for (const char c : value) {
    if (!is_blank(c)) {
      made += c;
    } else if (!made.empty() && made.back() != ' ') {
      made += ' ';
    }
  }
  if (!made.empty() && made.back() == ' ') made.pop_back();
  return made;
}

// Canonical headers: the values of each name joined by commas, sorted by name.
std::map<std::string, std::string> joined(const name_values& headers) {
  std::map<std::string, std::string> made;
  for (const auto& [name, value] : headers) {
    const auto [at, is_new] = made.try_emplace(lower(name), collapsed(value));
    if (!is_new) at->second += "," + collapsed(value);
  }
  return made;
}

std::string signed_names(const name_values& headers) {
  std::string names;
  for (const auto& [name, value] : joined(headers)) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string scope_text(const sigv4_scope& scope) {
  return fmt::format("{}/{}/{}/aws4_request", basic_utc_time(scope.time).substr(0, 8), scope.region, scope.service);
}

std::string signature(std::string_view canonical, const sigv4_scope& scope, const secret& key) {
  std::string first = fmt::format("AWS4{}", key.reveal());
  auto derived = hmac_sha256(bytes_of(first), bytes_of(basic_utc_time(scope.time).substr(0, 8)));
  wipe(first);
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service), std::string_view("aws4_request")}) {
    auto next = hmac_sha256(derived, bytes_of(part));
    derived = next;
    wipe_memory(next);
  }
  const auto made = hmac_sha256(derived, bytes_of(string_to_sign(canonical, scope)));
  wipe_memory(derived);
  return hex_digits(made);
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_payload_hash(std::string_view text) {
  if (text.starts_with("UNSIGNED-") || text.starts_with("STREAMING-")) return is_token(text);
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

result<void> check_headers(const name_values& headers) {
  constexpr std::array<std::string_view, 4> set_here{"authorization", "x-amz-content-sha256", "x-amz-date",
                                                     "x-amz-security-token"};
  for (const auto& [name, value] : headers) {
    if (!is_token(name))
      return fail(errc::invalid_argument, "a header's name is malformed").with_values("letters, digits, and -", name);
    if (std::find(set_here.begin(), set_here.end(), lower(name)) != set_here.end())
      return fail(errc::invalid_argument, fmt::format("the signature sets the header {}", lower(name)))
          .with_hint("leave the header out");
    // A line break would begin another header. The value may be a secret, so it is not named.
    if (std::any_of(value.begin(), value.end(), [](char c) { return is_control(c) && c != '\t'; }))
      return fail(errc::invalid_argument, fmt::format("the header {} has a control character", lower(name)));
  }
  if (!joined(headers).contains("host")) return fail(errc::invalid_argument, "a request without host cannot be signed");
  return {};
}

result<void> check(const sigv4_request& request, const sigv4_scope& scope) {
  if (!is_token(request.method))
    return fail(errc::invalid_argument, "the request's method is malformed").with_values("letters", request.method);
  if (!request.path.starts_with('/'))
    return fail(errc::invalid_argument, "the request's path is malformed")
        .with_values("a path that begins with /", request.path);
  if (!is_payload_hash(request.payload_hash))
    return fail(errc::invalid_argument, "the payload hash is malformed")
        .with_values("64 lower-case hexadecimal digits, UNSIGNED-PAYLOAD, or STREAMING-...", request.payload_hash);
  if (!is_token(scope.region))
    return fail(errc::invalid_argument, "the region is malformed")
        .with_values("letters, digits, and -", scope.region)
        .with_hint("set AWS_REGION, or the profile's region");
  if (!is_token(scope.service))
    return fail(errc::invalid_argument, "the service is malformed").with_values("letters and digits", scope.service);
  if (scope.time < wall_time{}) return fail(errc::invalid_argument, "the time of the signature is before 1970");
  return check_headers(request.headers);
}

}  // namespace

std::string canonical_request(const sigv4_request& request) {
  std::string made =
      fmt::format("{}\n{}\n{}\n", request.method, encode_path(request.path), encode_query(request.query));
  for (const auto& [name, value] : joined(request.headers)) made += name + ":" + value + "\n";
  made += fmt::format("\n{}\n{}", signed_names(request.headers), request.payload_hash);
  return made;
}

std::string string_to_sign(std::string_view canonical, const sigv4_scope& scope) {
  return fmt::format("{}\n{}\n{}\n{}", algorithm, basic_utc_time(scope.time), scope_text(scope),
                     sha256::hex_of(bytes_of(canonical)));
}

result<name_values> sign(const sigv4_request& request, const sigv4_scope& scope, const aws_credentials& credentials) {
  if (credentials.is_anonymous()) {
    SHARDMESH_TRY(check_headers(request.headers));
    return request.headers;
  }
  SHARDMESH_TRY(check_credentials(credentials));
  SHARDMESH_TRY(check(request, scope));
  sigv4_request whole = request;
  whole.headers.emplace_back("x-amz-date", basic_utc_time(scope.time));
  if (scope.service == "s3") whole.headers.emplace_back("x-amz-content-sha256", request.payload_hash);
  if (!credentials.session_token.empty())
    whole.headers.emplace_back("x-amz-security-token", std::string(credentials.session_token.reveal()));
  std::string authorization = fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", algorithm,
                                          credentials.access_key, scope_text(scope), signed_names(whole.headers),
                                          signature(canonical_request(whole), scope, credentials.secret_key));
  whole.headers.emplace_back("authorization", std::move(authorization));
  return std::move(whole.headers);
}

result<std::string> presign(const sigv4_request& request, const sigv4_scope& scope, const aws_credentials& credentials,
                            std::chrono::seconds valid, std::string_view scheme) {
  constexpr std::chrono::seconds longest = std::chrono::hours(7 * 24);
  if (credentials.is_anonymous())
    return fail(errc::invalid_argument, "a URL cannot be signed without credentials")
        .with_hint("use the URL as it is, if the object is public");
  if (valid < std::chrono::seconds(1) || valid > longest)
    return fail(errc::invalid_argument, "the validity of a signed URL is out of range")
        .with_values("1 to 604800 seconds", fmt::format("{}", valid.count()));
  if (scheme != "https" && scheme != "http")
    return fail(errc::invalid_argument, "the scheme of a signed URL is unknown")
        .with_values("https or http", std::string(scheme));
  SHARDMESH_TRY(check_credentials(credentials));
  SHARDMESH_TRY(check(request, scope));
  sigv4_request whole = request;
  whole.query.emplace_back("X-Amz-Algorithm", std::string(algorithm));
  whole.query.emplace_back("X-Amz-Credential", credentials.access_key + "/" + scope_text(scope));
  whole.query.emplace_back("X-Amz-Date", basic_utc_time(scope.time));
  whole.query.emplace_back("X-Amz-Expires", fmt::format("{}", valid.count()));
  if (!credentials.session_token.empty())
    whole.query.emplace_back("X-Amz-Security-Token", std::string(credentials.session_token.reveal()));
  whole.query.emplace_back("X-Amz-SignedHeaders", signed_names(whole.headers));
  return fmt::format("{}://{}{}?{}&X-Amz-Signature={}", scheme, joined(whole.headers).at("host"),
                     encode_path(whole.path), encode_query(whole.query),
                     signature(canonical_request(whole), scope, credentials.secret_key));
}

}  // namespace shardmesh::remote
