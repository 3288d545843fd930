// SPDX-License-Identifier: Apache-2.0
module;
#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :attempt;
import :failure;
import :text_parts;

namespace shardmesh::remote {
namespace {

// Only a change of the settings resolves these failures.
bool is_final_code(int code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_LOGIN_DENIED:
    case CURLE_WRITE_ERROR:  // the headers are too long
      return true;
    default:
      return false;
  }
}

// Bytes that begin no answer are HTTP/0.9 to libcurl: the rest of an earlier answer, for example. A new connection has
// none.
bool is_garbled(const attempt& ended) {
  return ended.curl_code == CURLE_UNSUPPORTED_PROTOCOL && ended.reason.find("HTTP/0.9") != std::string::npos;
}

std::string_view hint_for(int code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      return "check the server's certificate, or name a file with its authority's in CURL_CA_BUNDLE";
    case CURLE_COULDNT_RESOLVE_HOST:
      return "check the host's name";
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "check the variables https_proxy and no_proxy";
    case CURLE_UNSUPPORTED_PROTOCOL:
      return "redirects from https to http, and other protocols, are not followed";
    default:
      return "";
  }
}

failure of_connection(const attempt& ended, const http_options& options) {
  if (ended.curl_code == CURLE_OUT_OF_MEMORY) {
    error lack =
        fail(errc::no_memory, "there is no memory for the request").with_file(printable_url(ended.request.url));
    lack.sys = ENOMEM;
    return final_failure(std::move(lack));
  }
  error why = fail(errc::io, fmt::format("the request failed: {}", escaped(ended.reason)))
                  .with_file(printable_url(ended.request.url));
  if (is_garbled(ended)) return repeatable(std::move(why), options);
  why = std::move(why).with_hint(hint_for(ended.curl_code));
  if (is_final_code(ended.curl_code)) return final_failure(std::move(why));
  failure made = repeatable(std::move(why), options);
  // An unknown name rarely becomes known.
  if (ended.curl_code == CURLE_COULDNT_RESOLVE_HOST) made.attempts = std::min(made.attempts, 3);
  return made;
}

// S3 puts the reason of a refusal into <Code> and <Message>.
std::string_view element_of(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t begin = text.find(open);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = text.find(close, begin);
  if (end == std::string_view::npos) return {};
  return text.substr(begin + open.size(), end - begin - open.size());
}

}  // namespace

failure repeatable(error why, const http_options& options) {
  return {std::move(why), std::max(options.attempts, 1), false, std::chrono::milliseconds(-1)};
}

failure final_failure(error why) {
  return {std::move(why), 1, false, std::chrono::milliseconds(-1), true};
}

error last_error(const failure& last, int attempts) {
  error made = last.why;
  if (attempts > 1) made.message += fmt::format(" (the last of {} attempts)", attempts);
  return made;
}

std::chrono::milliseconds retry_after_of(const http_response& head) {
  const std::string_view text = head.header("retry-after");
  unsigned seconds = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return std::chrono::milliseconds(-1);
  return std::chrono::seconds(std::min(seconds, 30U));
}

std::vector<std::string_view> secrets_in(std::string_view url) {
  constexpr std::size_t least = 6;  // "1" and "json" are no secrets, and stand in other texts
  std::vector<std::string_view> made;
  const std::size_t scheme = url.find("://"), query = std::min(url.find('?'), url.size());
  const std::size_t begin = scheme == std::string_view::npos ? 0 : scheme + 3;
  const std::string_view host = url.substr(begin, url.find_first_of("/?", begin) - begin);
  if (const std::size_t at = host.rfind('@'); at != std::string_view::npos && at >= least) {
    made.push_back(host.substr(0, at));
    if (const std::size_t colon = host.find(':'); colon < at && at - colon > least)
      made.push_back(host.substr(colon + 1, at - colon - 1));
  }
  std::string_view fields = url.substr(query);
  while (!fields.empty()) {
    fields.remove_prefix(1);  // '?' or '&'
    const std::string_view field = fields.substr(0, fields.find('&'));
    fields.remove_prefix(field.size());
    const std::string_view value = field.substr(field.find('=') + 1);  // the whole field, if it has no '='
    if (value.size() >= least) made.push_back(value);
  }
  return made;
}

std::vector<std::string_view> secrets_of(const http_request& sent) {
  std::vector<std::string_view> made = secrets_in(sent.url);
  for (const auto& [name, value] : sent.headers) {
    const std::string_view text = value;
    if (lower(name) == "authorization") made.push_back(text.substr(text.rfind(' ') + 1));  // behind "Bearer"
    if (lower(name) == "x-amz-security-token") made.push_back(text);
  }
  return made;
}

std::string answer_text(const http_response& head, std::string_view text, std::span<const std::string_view> secrets) {
  constexpr std::size_t most = 200;
  std::string made = fmt::format("{}", head.status);
  if (const auto code = head.header("x-error-code"); !code.empty()) made += fmt::format(" {}", code);
  if (const auto said = head.header("x-error-message"); !said.empty()) made += fmt::format(": {}", said);
  if (const auto code = element_of(text, "<Code>", "</Code>"); !code.empty()) {
    made += fmt::format(" {}", code);
    if (const auto said = element_of(text, "<Message>", "</Message>"); !said.empty()) made += fmt::format(": {}", said);
  }
  return shortened(escaped(without_secrets(std::move(made), secrets)), most);
}

std::optional<failure> failure_of(const attempt& ended, std::string_view text, const http_options& options) {
  const std::string shown = printable_url(ended.request.url);
  switch (ended.end) {
    case attempt::ending::withdrawn:
      return final_failure(fail(errc::cancelled, "the HTTP client was destroyed during the request").with_file(shown));
    case attempt::ending::stalled:
      return repeatable(
          fail(errc::io, fmt::format("the server sent almost nothing for {}", detail::duration_text(options.stall)))
              .with_file(shown),
          options);
    case attempt::ending::failed:
      return of_connection(ended, options);
    case attempt::ending::answered:
    case attempt::ending::refused:
      break;
  }
  const int status = ended.head.status;
  if (status >= 200 && status < 500 && status != 408 && status != 429) return std::nullopt;
  const bool is_answer = status == 501 || status == 505;
  if (is_answer) return std::nullopt;
  failure made =
      repeatable(fail(errc::io, "the server cannot answer the request now")
                     .with_file(shown)
                     .with_values("a status below 500", answer_text(ended.head, text, secrets_of(ended.request))),
                 options);
  made.is_throttle = status == 429 || status == 503;
  made.retry_after = retry_after_of(ended.head);
  return made;
}

}  // namespace shardmesh::remote
