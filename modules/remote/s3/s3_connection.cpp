// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.remote;

import shardmesh.digest;
import :s3_connection;
import :sigv4;
import :text_parts;

namespace shardmesh::remote {
namespace {

// Parses "Fri, 24 May 2013 00:00:00 GMT".
std::optional<wall_time> parse_http_date(std::string_view text) {
  constexpr std::array<std::string_view, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29) return std::nullopt;
  const auto month = std::find(months.begin(), months.end(), text.substr(8, 3));
  if (month == months.end()) return std::nullopt;
  return parse_utc_time(fmt::format("{}-{:02}-{}T{}Z", text.substr(12, 4), month - months.begin() + 1,
                                    text.substr(5, 2), text.substr(17, 8)));
}

// The permission that a request needs, for messages.
std::string_view action_of(const s3_request& request) {
  const auto asks = [&](std::string_view field) {
    return std::any_of(request.query.begin(), request.query.end(), [&](const auto& one) { return one.first == field; });
  };
  if (request.of.key.empty()) return asks("uploads") ? "s3:ListBucketMultipartUploads" : "s3:ListBucket";
  if (asks("uploadId") && request.method == "GET") return "s3:ListMultipartUploadParts";
  if (asks("uploadId") && request.method == "DELETE") return "s3:AbortMultipartUpload";
  if (request.method == "GET" || request.method == "HEAD") return "s3:GetObject";
  return request.method == "DELETE" ? "s3:DeleteObject" : "s3:PutObject";
}

std::string_view remedy_for(std::string_view code) {
  if (code == "NoSuchBucket") return "check the bucket's name and the endpoint";
  if (code == "SignatureDoesNotMatch") return "check the secret key; a proxy that changes requests has the same effect";
  if (code == "InvalidAccessKeyId") return "check the access key and the endpoint";
  if (code == "RequestTimeTooSkewed") return "set the clock of this machine";
  if (code == "ExpiredToken" || code == "TokenRefreshRequired") return "renew the temporary credentials";
  if (code == "AccessDenied" || code == "Forbidden") return "allow this action for these credentials";
  return "";
}

// Names the object in an error of a request. Errors of settings and credentials name their own files.
error named(error why, const std::string& url) {
  if (why.file.empty() || why.file.starts_with("http")) why.file = printable_url(url);
  return why;
}

// Readers take ENOENT and EACCES for the server's answer about an object. A missing file of credentials is none.
template <class T>
result<T> without_answer(result<T> found) {
  if (found) return found;
  error why = std::move(found).error();
  why.sys = 0;
  return why;
}

bool is_expired(std::string_view code) {
  return code == "ExpiredToken" || code == "TokenRefreshRequired" || code == "RequestExpired";
}

}  // namespace

result<s3_name> parse_s3_url(const std::string& url) {
  const std::size_t begin = url.find("://");
  const std::string rest = begin == std::string::npos ? std::string() : url.substr(begin + 3);
  const std::size_t slash = rest.find('/');
  s3_name name{rest.substr(0, slash), slash == std::string::npos ? std::string() : rest.substr(slash + 1)};
  if (!name.bucket.empty()) return name;
  return fail(errc::invalid_argument, "the URL names no bucket").with_file(url).with_values("s3://BUCKET/KEY", "");
}

s3_connection::s3_connection(std::shared_ptr<const process_client> client, s3_sources sources, std::string scheme)
    : client_(std::move(client)),
      sources_(std::move(sources)),
      scheme_(std::move(scheme)),
      state_(std::make_unique<changing>()) {}

std::string s3_connection::url_of(const s3_name& name) const {
  return fmt::format("{}://{}/{}", scheme_, name.bucket, name.key);
}

result<s3_settings> s3_connection::settings_of(const std::string& bucket) const {
  const std::scoped_lock guard(state_->lock);
  if (!state_->settings) {
    SHARDMESH_TRY(state_->settings, sources_.settings());
  }
  s3_settings settings = *state_->settings;
  if (const auto found = state_->regions.find(bucket); found != state_->regions.end()) settings.region = found->second;
  return settings;
}

result<void> s3_connection::address_and_sign(const s3_request& from, const std::string& payload,
                                             http_request& to) const {
  SHARDMESH_TRY(const s3_settings settings, without_answer(settings_of(from.of.bucket)));
  SHARDMESH_TRY(const s3_address address, address_of(settings, from.of.bucket, from.of.key));
  aws_credentials keys;
  if (!settings.is_anonymous) {
    const detail::call_in_progress* const call = detail::current_call();
    SHARDMESH_TRY(keys, without_answer(sources_.credentials(call != nullptr ? call->limits : call_options{})));
  }
  sigv4_scope scope{settings.region, "s3", std::chrono::system_clock::now()};
  {
    const std::scoped_lock guard(state_->lock);
    state_->credentials = to_string(keys);
    state_->session_token = keys.session_token;
    scope.time += state_->skew;
  }
  sigv4_request plain{from.method, address.path, from.query, from.headers, payload};
  plain.headers.emplace_back("host", address.host);
  SHARDMESH_TRY(name_values headers, sign(plain, scope, keys));
  // libcurl sends the host of the URL.
  std::erase_if(headers, [](const auto& one) { return one.first == "host"; });
  to.url = fmt::format("{}://{}{}", address.scheme, address.host, encode_path(address.path));
  if (!from.query.empty()) to.url += '?' + encode_query(from.query);
  // Headers of an earlier attempt, and those of the caller, are replaced. The client's own (Range, If-Match) stay.
  std::erase_if(to.headers, [&](const auto& old) {
    return old.first.starts_with("x-amz-") || old.first == "authorization" ||
           std::any_of(headers.begin(), headers.end(), [&](const auto& made) { return made.first == old.first; });
  });
  for (auto& header : headers) to.headers.push_back(std::move(header));
  return {};
}

bool s3_connection::recovers(const s3_request& from, const http_response& answer) const {
  const auto failure = parse_s3_failure(answer.body);
  const std::string code = failure ? failure->code : "";
  std::string region(answer.header("x-amz-bucket-region"));
  if (region.empty() && failure) region = failure->region;
  const auto present = settings_of(from.of.bucket);
  const std::scoped_lock guard(state_->lock);
  if (present && !region.empty() && region != present->region) {
    state_->regions[from.of.bucket] = region;
    return true;
  }
  const auto server = parse_http_date(answer.header("date"));
  if (server && (code == "RequestTimeTooSkewed" || (answer.status == 403 && from.method == "HEAD"))) {
    const auto skew = std::chrono::duration_cast<std::chrono::seconds>(*server - std::chrono::system_clock::now());
    const auto change = std::chrono::abs(skew - state_->skew);
    if (change < std::chrono::minutes(5)) return false;
    state_->skew = skew;
    return true;
  }
  // An answer to HEAD has no body that could name the code.
  if (sources_.renew && (is_expired(code) || (answer.status == 400 && from.method == "HEAD"))) {
    sources_.renew();
    return true;
  }
  return false;
}

http_request s3_connection::unsigned_request(const s3_request& from) const {
  http_request made{.method = from.method, .url = url_of(from.of), .body = from.body};
  made.recover = [this, from](const http_request&, const http_response& answer) { return recovers(from, answer); };
  return made;
}

result<http_response> s3_connection::send(const s3_request& request, std::int64_t limit_bytes) const {
  SHARDMESH_TRY(const auto* const client, client_->get());
  const std::string payload = sha256::hex_of(request.body);
  auto answer = client->send(unsigned_request(request), limit_bytes,
                             [&](http_request& to) { return address_and_sign(request, payload, to); });
  if (!answer) return named(std::move(answer).error(), url_of(request.of));
  return answer;
}

result<void> s3_connection::read(const s3_name& object, std::span<const http_range> ranges, const std::string& version,
                                 std::int64_t total_bytes) const {
  SHARDMESH_TRY(const auto* const client, client_->get());
  const s3_request request{.of = object};
  const std::string payload = sha256::hex_of({});
  auto done = client->read(unsigned_request(request), ranges, version, total_bytes,
                           [&](http_request& to) { return address_and_sign(request, payload, to); });
  if (!done) return named(std::move(done).error(), url_of(object));
  return done;
}

std::int64_t s3_connection::bytes_per_request(const s3_name& object) const {
  const auto client = client_->get();
  return client ? (*client)->bytes_per_request(url_of(object)) : 0;
}

error s3_connection::refusal(const s3_request& request, const http_response& answer) const {
  const auto failure = parse_s3_failure(answer.body);
  const std::string code = failure ? failure->code : answer.status == 403 ? "Forbidden" : "";
  std::string keys;
  secret token;
  {
    const std::scoped_lock guard(state_->lock);
    keys = state_->credentials;
    token = state_->session_token;
  }
  const std::string_view secrets[] = {token.reveal()};
  const std::string said = failure ? without_secrets(failure->message, secrets) : "";
  error refused = fail(errc::io, fmt::format("the server refuses {} with {}", action_of(request), keys))
                      .with_file(url_of(request.of))
                      .with_values("", fmt::format("status {}{}{}", answer.status, code.empty() ? "" : " " + code,
                                                   failure ? ": " + escaped(said.substr(0, 300)) : ""));
  refused.sys = answer.status == 403 ? EACCES : answer.status == 404 ? ENOENT : 0;
  if (const std::string_view remedy = remedy_for(code); !remedy.empty()) return std::move(refused).with_hint(remedy);
  return refused;
}

}  // namespace shardmesh::remote
