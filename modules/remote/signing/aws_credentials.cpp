// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
module shardmesh.remote;

import :credential_check;

namespace shardmesh::remote {
namespace {

bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

std::string to_string(const aws_credentials& credentials) {
  const std::string source = credentials.source.empty() ? "" : fmt::format(" ({})", credentials.source);
  if (credentials.is_anonymous()) return "no credentials" + source;
  const std::string& key = credentials.access_key;
  if (key.size() < 12) return "an access key" + source;
  return fmt::format("the access key ending in {}{}", key.substr(key.size() - 4), source);
}

result<void> check_credentials(const aws_credentials& credentials) {
  if (credentials.is_anonymous()) return {};
  const auto refuse = [&](std::string_view what) {
    return fail(errc::invalid_argument, fmt::format("{} of the credentials cannot be sent in a header", what))
        .with_values("printable ASCII characters without spaces", "other characters")
        .with_hint(fmt::format("correct the value; its source is {}",
                               credentials.source.empty() ? "the caller" : credentials.source));
  };
  if (!is_printable_ascii(credentials.access_key)) return refuse("the access key");
  if (!is_printable_ascii(credentials.session_token.reveal())) return refuse("the session token");
  if (credentials.secret_key.empty())
    return fail(errc::invalid_argument, "the credentials have an access key but no secret key")
        .with_hint(
            fmt::format("set both; the source is {}", credentials.source.empty() ? "the caller" : credentials.source));
  return {};
}

}  // namespace shardmesh::remote
