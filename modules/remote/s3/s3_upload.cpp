// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :s3_answers;
import :s3_unfinished;
import :s3_upload;

namespace shardmesh::remote {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;
// Larger objects are sent in parts of this size, or of as many more bytes as 10,000 parts need. With little memory,
// parts are smaller; S3 takes no part below 5 MiB, except for the last one.
constexpr std::int64_t part_bytes = 16 * mebibyte, least_part_bytes = 5 * mebibyte, most_part_bytes = 5120 * mebibyte;
constexpr std::int64_t most_parts = 10'000, most_parts_at_once = 8;
constexpr std::int64_t most_answer_bytes = mebibyte;
constexpr std::string_view token_header = "x-amz-meta-shardmesh-upload";
// Two conditional writes of one name at a time: the server may ask to repeat one of them.
constexpr int most_conflicts = 5;

std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

std::int64_t part_bytes_within(std::int64_t memory_bytes) {
  const std::int64_t memory = memory_bytes > 0 ? memory_bytes : part_bytes;
  return std::clamp(memory / mebibyte * mebibyte, least_part_bytes, part_bytes);
}

// Returns how many parts are in flight at a time.
int parts_within(std::int64_t memory_bytes, std::int64_t each) {
  const std::int64_t memory = memory_bytes > 0 ? memory_bytes : most_parts_at_once * part_bytes;
  return static_cast<int>(std::clamp<std::int64_t>(memory / each, 1, most_parts_at_once));
}

result<std::vector<std::byte>> read_part(const byte_source& content, std::int64_t offset, std::int64_t length) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  SHARDMESH_TRY(content.read(offset, bytes));
  return bytes;
}

}  // namespace

s3_upload::s3_upload(const s3_connection& to, s3_name name, const put_condition& condition)
    : to_(to),
      name_(std::move(name)),
      condition_(condition),
      token_(new_token()),
      is_bare_(to.compares_bare_versions()) {}

result<std::string> s3_upload::put(const byte_source& content) {
  const bool is_small = content.size_bytes() <= part_bytes_within(condition_.memory_bytes);
  auto done = is_small ? put_whole(content) : put_parts(content);
  if (done) return done;
  error why = std::move(done).error();
  const detail::cleanup_scope limits;
  if (const std::string rest = is_small ? "" : end_parts(); !rest.empty())
    why.hint += (why.hint.empty() ? "" : "; ") + rest;
  const bool is_removed = condition_.if_absent && why.code != errc::destination_exists && remove_ours();
  // The server may have the whole request, and still work on it.
  if (!is_removed && is_completing_ && detail::is_limit_error(why)) why.sys = EINPROGRESS;
  return why;
}

// The last request may have had its effect although its answer was lost, or came after the deadline. An object that
// replaced another one stays.
bool s3_upload::remove_ours() const {
  const auto ours = is_ours();
  return ours && *ours && to_.send({.method = "DELETE", .of = name_}, most_answer_bytes);
}

result<http_response> s3_upload::complete(const s3_request& request) {
  is_completing_ = detail::check_current_call().has_value();  // otherwise, nothing is sent
  SHARDMESH_TRY(http_response answer, to_.send(request, most_answer_bytes));
  is_completing_ = false;
  return answer;
}

name_values s3_upload::conditions() const {
  if (condition_.if_absent) return {{"if-none-match", "*"}};
  if (condition_.if_version.empty()) return {};
  return {{"if-match", is_bare_ ? unquoted(condition_.if_version) : condition_.if_version}};
}

result<bool> s3_upload::changes_form(const http_response& answer) {
  const std::string& version = condition_.if_version;
  if (answer.status != 412 || version.empty() || has_changed_form_ || unquoted(version) == version) return false;
  SHARDMESH_TRY(const http_response now, to_.send({.method = "HEAD", .of = name_}, most_answer_bytes));
  if (now.status != 200 || now.header("etag") != version) return false;
  has_changed_form_ = true;
  is_bare_ = !is_bare_;
  to_.compares_bare_versions() = is_bare_;
  return true;
}

result<std::string> s3_upload::put_whole(const byte_source& content) {
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_part(content, 0, content.size_bytes()));
  s3_request request{.method = "PUT", .of = name_, .body = bytes};
  for (int attempt = 1;; ++attempt) {
    request.headers = conditions();
    request.headers.emplace_back(token_header, token_);
    SHARDMESH_TRY(const http_response answer, complete(request));
    if (answer.status == 409 && attempt < most_conflicts) continue;
    SHARDMESH_TRY(const bool has_other_form, changes_form(answer));
    if (has_other_form) continue;
    SHARDMESH_TRY(std::string etag, outcome(request, answer));
    // The first conditional write to a server is repeated. A server that accepts it twice ignores conditions.
    if (condition_.if_absent && !to_.has_tried_conditions().exchange(true)) {
      const auto again = to_.send(request, most_answer_bytes);
      if (again && again->status == 200) to_.ignores_conditions() = true;
    }
    return etag;
  }
}

result<std::string> s3_upload::put_parts(const byte_source& content) {
  SHARDMESH_TRY(upload_id_, begin_parts());
  SHARDMESH_TRY(const std::vector<std::string> etags, send_parts(content, upload_id_));
  SHARDMESH_TRY(check_condition());
  return finish_parts(upload_id_, etags);
}

result<std::string> s3_upload::begin_parts() {
  const s3_request request{
      .method = "POST", .of = name_, .query = {{"uploads", ""}}, .headers = {{std::string(token_header), token_}}};
  may_have_begun_ = true;
  SHARDMESH_TRY(const http_response answer, to_.send(request, most_answer_bytes));
  may_have_begun_ = answer.status == 200;
  if (!may_have_begun_) return to_.refusal(request, answer);
  auto id = s3_text(answer.body, "InitiateMultipartUploadResult", "UploadId");
  if (!id) return std::move(id).error().with_file(to_.url_of(name_));
  return id;
}

result<std::vector<std::string>> s3_upload::send_parts(const byte_source& content, const std::string& id) {
  const std::int64_t size = content.size_bytes();
  std::int64_t each = part_bytes_within(condition_.memory_bytes);
  while ((size + each - 1) / each > most_parts) each += part_bytes;
  if (each > most_part_bytes)
    return fail(errc::unsupported, "the object is too large for one upload")
        .with_file(to_.url_of(name_))
        .with_values(fmt::format("at most {}", human_bytes(most_parts * most_part_bytes)), human_bytes(size));
  const std::int64_t count = (size + each - 1) / each;
  std::vector<std::string> etags(static_cast<std::size_t>(count));
  const int at_once = parts_within(condition_.memory_bytes, each);
  SHARDMESH_TRY(parallel_for(at_once, count, [&](std::int64_t i) -> result<void> {
    SHARDMESH_TRY(const std::vector<std::byte> bytes, read_part(content, i * each, std::min(each, size - i * each)));
    const s3_request request{.method = "PUT",
                             .of = name_,
                             .query = {{"partNumber", fmt::format("{}", i + 1)}, {"uploadId", id}},
                             .body = bytes};
    SHARDMESH_TRY(const http_response answer, to_.send(request, most_answer_bytes));
    if (answer.status != 200) return to_.refusal(request, answer);
    etags[static_cast<std::size_t>(i)] = answer.header("etag");
    if (etags[static_cast<std::size_t>(i)].empty())
      return fail(errc::io, "the server's answer to a part has no ETag").with_file(to_.url_of(name_));
    return {};
  }));
  return etags;
}

// A server that denies this look is trusted to compare the condition itself.
result<void> s3_upload::check_condition() const {
  if (!condition_.if_absent && condition_.if_version.empty()) return {};
  SHARDMESH_TRY(const http_response now, to_.send({.method = "HEAD", .of = name_}, most_answer_bytes));
  if (now.status != 200 || (!condition_.if_absent && now.header("etag") == condition_.if_version)) return {};
  return condition_failed();
}

error s3_upload::condition_failed() const {
  return fail(errc::destination_exists, condition_.if_absent ? "exists already" : "has changed meanwhile")
      .with_file(to_.url_of(name_));
}

result<std::string> s3_upload::finish_parts(const std::string& id, std::span<const std::string> etags) {
  const std::string body = s3_completion(etags);
  s3_request request{.method = "POST", .of = name_, .query = {{"uploadId", id}}};
  request.body = std::as_bytes(std::span(body));
  for (int attempt = 1;; ++attempt) {
    request.headers = conditions();
    SHARDMESH_TRY(const http_response answer, complete(request));
    if (answer.status == 409 && attempt < most_conflicts) continue;
    SHARDMESH_TRY(const bool has_other_form, changes_form(answer));
    if (has_other_form) continue;
    // The server sends status 200 before it has put the parts together, so that a failure stands in the body.
    const auto late = answer.status == 200 ? parse_s3_failure(answer.body) : std::nullopt;
    if (!late) return outcome(request, answer);
    if (late->code != "InternalError" && late->code != "SlowDown" && late->code != "ServiceUnavailable")
      return to_.refusal(request, answer);
    if (attempt == most_conflicts) return to_.refusal(request, answer);
    detail::wait_within_limits(std::chrono::milliseconds(200 << attempt));  // after a limit, the next request fails
  }
}

std::string s3_upload::end_parts() const {
  if (upload_id_.empty() && !may_have_begun_) return {};
  bool is_ended = false;
  if (!upload_id_.empty()) {
    const s3_request request{.method = "DELETE", .of = name_, .query = {{"uploadId", upload_id_}}};
    const auto answer = to_.send(request, most_answer_bytes);
    is_ended = answer && (answer->status == 204 || answer->status == 200);
    if (!is_ended && !(answer && answer->status == 404))
      return fmt::format("abort the unfinished upload {} of this object: the server keeps its parts",
                         escaped(upload_id_));
  }
  const auto found = find_unfinished(to_, name_);
  if (!found && is_ended) return {};
  const std::string url = to_.url_of(name_);
  if (found && std::none_of(found->begin(), found->end(), [&](const auto& one) { return one.url == url; })) return {};
  return fmt::format("the server {} an unfinished upload of this object, which `shardmesh clean` ends after a day",
                     found ? "has" : "may have");
}

result<std::string> s3_upload::outcome(const s3_request& request, const http_response& answer) {
  if (answer.status == 200) {
    std::string etag(answer.header("etag"));
    // Not every server states the ETag of a whole object.
    if (!etag.empty() || request.method == "PUT") return etag;
    auto in_body = s3_text(answer.body, "CompleteMultipartUploadResult", "ETag");
    if (in_body) return in_body;
    SHARDMESH_TRY(const auto ours, is_ours());  // Ceph leaves the element empty
    if (ours) return *ours;
    return std::move(in_body).error().with_file(to_.url_of(name_));
  }
  // An earlier attempt may have succeeded, and its answer was lost: the condition then fails because of our own object,
  // and the upload that we complete is unknown.
  if (answer.status == 412 || answer.status == 404 || answer.status == 409) {
    SHARDMESH_TRY(const auto ours, is_ours());
    if (ours) return *ours;
  }
  if (answer.status == 412 || answer.status == 409) return condition_failed();
  return to_.refusal(request, answer);
}

result<std::optional<std::string>> s3_upload::is_ours() const {
  SHARDMESH_TRY(const http_response answer, to_.send({.method = "HEAD", .of = name_}, most_answer_bytes));
  if (answer.status != 200 || answer.header(token_header) != token_) return std::optional<std::string>();
  return std::optional(std::string(answer.header("etag")));
}

}  // namespace shardmesh::remote
