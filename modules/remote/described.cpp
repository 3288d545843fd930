// SPDX-License-Identifier: Apache-2.0
module;
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.remote;

import :failure;
import :http_store_parts;
import :url_text;

namespace shardmesh::remote {
namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> size_of(const http_response& answer) {
  if (answer.status == 200) return whole_number(answer.header("content-length"));
  const std::string_view range = answer.header("content-range");
  const std::size_t slash = range.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return whole_number(range.substr(slash + 1));
}

}  // namespace

result<std::optional<stored_object>> described(const http_response& answer, const std::string& url) {
  const int status = answer.status;
  const bool is_folder = is_folder_url(answer.url);
  // No range of an empty object can be satisfied.
  const bool is_empty = status == 416 && answer.header("content-range") == "bytes */0";
  const bool is_found = status == 200 || status == 206 || is_empty;
  if (status == 404 || status == 410) return std::optional<stored_object>();
  if (is_folder && (is_found || status == 403)) return std::optional(stored_object{last_part(url), true, 0, {}});
  // S3 refuses access to a missing object when the reader may not list the bucket.
  if (status == 403 && !answer.header("x-amz-request-id").empty()) return std::optional<stored_object>();
  if (!is_found) {
    error refused = fail(errc::io, status == 401 || status == 403 ? "the server refuses access" : "the server refuses")
                        .with_file(printable_url(url));
    refused.expected = "status 200";
    refused.sys = status == 401 || status == 403 ? EACCES : 0;
    std::vector<std::string_view> secrets = secrets_in(url);
    for (const std::string_view one : secrets_in(answer.url)) secrets.push_back(one);  // of a redirect's target
    refused.found =
        answer_text(answer, {reinterpret_cast<const char*>(answer.body.data()), answer.body.size()}, secrets);
    return refused;
  }
  const auto size = size_of(answer);
  if (!size)
    return fail(errc::unsupported, "the server does not state the size of the object")
        .with_file(printable_url(url))
        .with_hint("download the file, and open the copy");
  return std::optional(stored_object{last_part(url), false, *size, std::string(answer.header("etag"))});
}

}  // namespace shardmesh::remote
