// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.remote;

import :answer_sinks;
import :attempt;
import :failure;

namespace shardmesh::remote {
namespace {

constexpr std::size_t most_text = 4096, most_refusal = 1 << 20;

std::optional<std::int64_t> number_at(std::string_view& text) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  return number;
}

bool skip(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

struct content_range {
  std::int64_t first = 0, last = 0, total = 0;
};

// Parses "bytes 0-9/100". Returns nothing for any other text, also for "bytes 0-9/*".
std::optional<content_range> parse_content_range(std::string_view text) {
  if (!skip(text, "bytes ")) return std::nullopt;
  const auto first = number_at(text);
  if (!first || !skip(text, "-")) return std::nullopt;
  const auto last = number_at(text);
  if (!last || !skip(text, "/")) return std::nullopt;
  const auto total = number_at(text);
  if (!total || !text.empty()) return std::nullopt;
  return content_range{*first, *last, *total};
}

}  // namespace

bool kept_body::take(std::span<const std::byte> bytes) {
  is_too_long_ = static_cast<std::int64_t>(bytes.size()) > limit_bytes_ - static_cast<std::int64_t>(bytes_.size());
  if (is_too_long_) return false;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return true;
}

range_body::problem range_body::check(const http_response& head) const {
  const auto size = static_cast<std::int64_t>(out_.size());
  const std::string_view encoding = head.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") return problem::encoded;
  if (head.status == 200 && (expected_.offset != 0 || size != expected_.total_bytes)) return problem::whole_object;
  if (head.status == 206) {
    const auto range = parse_content_range(head.header("content-range"));
    if (!range) return problem::wrong_range;
    if (range->total != expected_.total_bytes) return problem::other_size;
    if (range->first != expected_.offset || range->last != expected_.offset + size - 1) return problem::wrong_range;
  }
  if (!expected_.version.empty() && head.header("etag") != expected_.version) return problem::other_version;
  std::string_view length = head.header("content-length");
  if (length.empty()) return problem::none;  // chunked: the bytes are counted
  const auto number = number_at(length);
  if (number && length.empty() && *number == size) return problem::none;
  return head.status == 200 ? problem::other_size : problem::wrong_length;
}

bool range_body::begin(const http_response& head) {
  is_refusal_ = head.status != 206 && head.status != 200;
  if (!is_refusal_) problem_ = check(head);
  return problem_ == problem::none;
}

bool range_body::take(std::span<const std::byte> bytes) {
  if (is_refusal_) {
    received_ += bytes.size();
    const std::size_t kept = std::min(bytes.size(), most_text - text_.size());
    text_.append(reinterpret_cast<const char*>(bytes.data()), kept);
    return received_ <= most_refusal;
  }
  if (bytes.size() > out_.size() - received_) {
    problem_ = problem::too_long;
    return false;
  }
  std::memcpy(out_.data() + received_, bytes.data(), bytes.size());
  received_ += bytes.size();
  return true;
}

error range_body::error_of(problem found, const http_response& head) const {
  const std::int64_t last = expected_.offset + static_cast<std::int64_t>(out_.size()) - 1;
  const auto shown = [](std::string_view text) {
    return text.empty() ? std::string("none") : shortened(escaped(text), 80);
  };
  const auto range = fmt::format("bytes {}-{}/{}", expected_.offset, last, expected_.total_bytes);
  switch (found) {
    case problem::whole_object:
      return fail(errc::unsupported, "the server ignores ranges")
          .with_values("status 206", fmt::format("{}", head.status))
          .with_hint("download the file, and open the copy");
    case problem::other_size:
      return fail(errc::io, "the object has another size than when it was opened")
          .with_values(fmt::format("{} bytes", expected_.total_bytes),
                       head.status == 206 ? shown(head.header("content-range")) : shown(head.header("content-length")))
          .with_hint("open it again");
    case problem::other_version:
      return fail(errc::io, "the object has changed since it was opened")
          .with_values(fmt::format("ETag {}", shown(expected_.version)), shown(head.header("etag")))
          .with_hint("open it again");
    case problem::encoded:
      return fail(errc::io, "the server compresses the answer")
          .with_values("no Content-Encoding", shown(head.header("content-encoding")))
          .with_hint("turn off compression for this file at the server");
    case problem::wrong_range:
      return fail(errc::io, "the answer has another range").with_values(range, shown(head.header("content-range")));
    case problem::wrong_length:
      return fail(errc::io, "the answer announces another length")
          .with_values(fmt::format("{} bytes", out_.size()), shown(head.header("content-length")));
    case problem::too_long:
      return fail(errc::io, "the answer has more bytes than the request").with_values(range, "more");
    case problem::none:
      break;
  }
  return fail(errc::io, "the answer ended early")
      .with_values(fmt::format("{} bytes", out_.size()), fmt::format("{}", received_));
}

std::optional<failure> range_body::failure_of(const attempt& ended, const http_options& options) const {
  const http_response& head = ended.head;
  const std::string shown = printable_url(ended.request.url);
  const bool is_over = ended.end == attempt::ending::answered || ended.end == attempt::ending::refused;
  if (is_over && problem_ != problem::none) {
    error why = error_of(problem_, head).with_file(shown);
    // These may come from a proxy that mixed up answers. The other problems are those of the object or of the server,
    // and a repetition does not change them.
    const bool may_pass =
        problem_ == problem::wrong_range || problem_ == problem::wrong_length || problem_ == problem::too_long;
    return may_pass ? repeatable(std::move(why), options) : final_failure(std::move(why));
  }
  if (auto failed = remote::failure_of(ended, text_, options)) return failed;
  if (head.status == 412) return final_failure(error_of(problem::other_version, head).with_file(shown));
  if (head.status == 416) return final_failure(error_of(problem::other_size, head).with_file(shown));
  if (is_refusal_)
    return final_failure(fail(errc::io, "the server refuses to send the object")
                             .with_file(shown)
                             .with_values("status 206", answer_text(head, text_, secrets_of(ended.request))));
  if (received_ == out_.size()) return std::nullopt;
  return repeatable(error_of(problem::none, head).with_file(shown), options);
}

}  // namespace shardmesh::remote
