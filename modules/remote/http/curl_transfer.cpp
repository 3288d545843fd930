// SPDX-License-Identifier: Apache-2.0
module;
#include <remote/http/curl_functions.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
module shardmesh.remote;

import :attempt;
import :curl_library;
import :curl_transfer;
import :open_sockets;

namespace shardmesh::remote {
namespace {

constexpr std::size_t most_header_bytes = 256 << 10;
constexpr std::size_t bytes_of_progress = 4096;
constexpr int uploads_wait = 12;
constexpr long buffer_bytes = 512L << 10;  // 16 KiB, the default, costs twice as much CPU time

// After `load_curl` has succeeded.
const curl_functions& curl() {
  return *static_cast<const curl_functions*>(curl_table());
}

// Exceptions must not pass through libcurl, which is C: without memory, the attempt ends.
std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer) try {
  return static_cast<curl_transfer*>(transfer)->take_header({data, size * count}) ? size * count : 0;
} catch (...) {
  static_cast<curl_transfer*>(transfer)->note_want_of_memory();
  return 0;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* transfer) try {
  const auto bytes = std::as_bytes(std::span(data, size * count));
  return static_cast<curl_transfer*>(transfer)->take_body(bytes) ? size * count : CURL_WRITEFUNC_ERROR;
} catch (...) {
  static_cast<curl_transfer*>(transfer)->note_want_of_memory();
  return CURL_WRITEFUNC_ERROR;
}

std::size_t on_upload(char* data, std::size_t size, std::size_t count, void* transfer) {
  return static_cast<curl_transfer*>(transfer)->give_body(std::as_writable_bytes(std::span(data, size * count)));
}

int on_seek(void* transfer, curl_off_t offset, int origin) {
  const bool is_done = origin == SEEK_SET && static_cast<curl_transfer*>(transfer)->rewind_body(offset);
  return is_done ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

int on_connected(void* transfer, char*, char*, int, int local_port) {
  return static_cast<curl_transfer*>(transfer)->may_send(local_port) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

int on_socket(void* sockets, curl_socket_t socket, curlsocktype) try {
  static_cast<open_sockets*>(sockets)->add(socket);
  return CURL_SOCKOPT_OK;
} catch (...) {
  return CURL_SOCKOPT_ERROR;
}

int on_close(void* sockets, curl_socket_t socket) {
  static_cast<open_sockets*>(sockets)->close(socket);
  return 0;
}

// A line break in a header would begin another header, or another request.
bool is_header_text(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
}

std::string_view without_blanks(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string in_lower_case(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

}  // namespace

void set_failed(attempt& of, int curl_code, const char* reason) noexcept {
  try {
    of.reason = reason;
  } catch (...) {
    return set_out_of_memory(of);
  }
  of.end = attempt::ending::failed;
  of.curl_code = curl_code;
}

void set_out_of_memory(attempt& of) noexcept {
  of.end = attempt::ending::failed;
  of.curl_code = CURLE_OUT_OF_MEMORY;
  of.reason.clear();
}

curl_transfer::curl_transfer(std::shared_ptr<attempt> of, const http_options& options, open_sockets& sockets)
    : of_(std::move(of)), sockets_(sockets), easy_(load_curl() ? curl().easy_init() : nullptr) {
  static_assert(CURL_ERROR_SIZE <= std::tuple_size_v<decltype(message_)>);
  connect_ = options.connect;
  try {
    if (easy_ == nullptr)
      refuse(CURLE_OUT_OF_MEMORY, "");
    else
      set_up(options);
  } catch (...) {  // the destructor of a constructed object frees the handle
    refuse(CURLE_OUT_OF_MEMORY, "");
  }
}

curl_transfer::~curl_transfer() {
  if (easy_ != nullptr) curl().easy_cleanup(static_cast<CURL*>(easy_));
  if (headers_ != nullptr) curl().slist_free_all(static_cast<curl_slist*>(headers_));
}

// Returns false.
bool curl_transfer::refuse(int code, const char* reason) {
  is_ready_ = false;
  set_failed(*of_, code, reason);
  return false;
}

void curl_transfer::set_up(const http_options& options) {
  auto* const easy = static_cast<CURL*>(easy_);
  const http_request& request = of_->request;
  // These keep requests away from other protocols and from a server that cannot prove its name.
  const char* const redirects = request.url.starts_with("https:") ? "https" : "http,https";
  const bool is_safe =
      curl().easy_setopt(easy, CURLOPT_URL, request.url.c_str()) == CURLE_OK &&
      curl().easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
      curl().easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, redirects) == CURLE_OK &&
      curl().easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L) == CURLE_OK &&
      curl().easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L) == CURLE_OK &&
      (options.ca_file.empty() || curl().easy_setopt(easy, CURLOPT_CAINFO, options.ca_file.c_str()) == CURLE_OK);
  if (!is_safe)
    refuse(CURLE_BAD_FUNCTION_ARGUMENT,
           "libcurl cannot restrict requests to HTTP and HTTPS with verified certificates");
  if (!is_safe || !add_headers()) return;

  curl().easy_setopt(easy, CURLOPT_PRIVATE, this);
  curl().easy_setopt(easy, CURLOPT_ERRORBUFFER, message_.data());
  curl().easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl().easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);  // the end of an attempt does not wait for the look-up of a name
  curl().easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl().easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl().easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // a proxy's answer is not the server's
  curl().easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);                // a signature covers the path as it was given
  curl().easy_setopt(easy, CURLOPT_USERAGENT, "shardmesh");
  curl().easy_setopt(easy, CURLOPT_BUFFERSIZE, buffer_bytes);
  curl().easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl().easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::max<std::int64_t>(options.connect.count(), 1)));
  curl().easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, &on_socket);
  curl().easy_setopt(easy, CURLOPT_SOCKOPTDATA, &sockets_);
  curl().easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, &on_close);
  curl().easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, &sockets_);
  curl().easy_setopt(easy, CURLOPT_PREREQFUNCTION, &on_connected);
  curl().easy_setopt(easy, CURLOPT_PREREQDATA, this);
  curl().easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
  curl().easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl().easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_body);
  curl().easy_setopt(easy, CURLOPT_WRITEDATA, this);
  if (!options.direct_hosts.empty()) {
    const char* const given = std::getenv("no_proxy") != nullptr ? std::getenv("no_proxy") : std::getenv("NO_PROXY");
    const std::string hosts = options.direct_hosts + (given != nullptr ? std::string(",") + given : std::string());
    curl().easy_setopt(easy, CURLOPT_NOPROXY, hosts.c_str());
  }
  set_method();
}

void curl_transfer::set_method() {
  auto* const easy = static_cast<CURL*>(easy_);
  const http_request& request = of_->request;
  if (request.method == "GET" || request.method == "HEAD") {
    if (request.method == "HEAD") curl().easy_setopt(easy, CURLOPT_NOBODY, 1L);
    curl().easy_setopt(easy, CURLOPT_FOLLOWLOCATION, request.follow_redirects ? 1L : 0L);
    curl().easy_setopt(easy, CURLOPT_MAXREDIRS, 10L);
    return;
  }
  if (request.method == "PUT" || request.method == "POST" || !request.body.empty()) {
    curl().easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl().easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, buffer_bytes);
    curl().easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl().easy_setopt(easy, CURLOPT_READFUNCTION, &on_upload);
    curl().easy_setopt(easy, CURLOPT_READDATA, this);
    curl().easy_setopt(easy, CURLOPT_SEEKFUNCTION, &on_seek);
    curl().easy_setopt(easy, CURLOPT_SEEKDATA, this);
  }
  curl().easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

bool curl_transfer::add_headers() {
  bool has_encoding = false;
  const auto add = [&](const std::string& line) {
    auto* const longer = curl().slist_append(static_cast<curl_slist*>(headers_), line.c_str());
    if (longer == nullptr) return false;
    headers_ = longer;
    return true;
  };
  for (const auto& [name, value] : of_->request.headers) {
    if (name.empty() || !is_header_text(name) || !is_header_text(value))
      return refuse(CURLE_BAD_FUNCTION_ARGUMENT, "a header of the request has a line break or no name");
    has_encoding |= in_lower_case(name) == "accept-encoding";
    // This is libcurl's spelling of a header without a value.
    if (!add(value.empty() ? name + ";" : name + ": " + value)) return refuse(CURLE_OUT_OF_MEMORY, "");
  }
  // Without Expect, libcurl does not wait a second for the permission to send a large body.
  if ((!has_encoding && !add("Accept-Encoding: identity")) || !add("Expect:")) return refuse(CURLE_OUT_OF_MEMORY, "");
  curl().easy_setopt(static_cast<CURL*>(easy_), CURLOPT_HTTPHEADER, static_cast<curl_slist*>(headers_));
  return true;
}

bool curl_transfer::has_stalled(clock::time_point now, std::chrono::milliseconds limit) {
  if (!is_sent_) {
    curl_off_t until_sent = 0;  // microseconds; 0 while libcurl still connects
    curl().easy_getinfo(static_cast<CURL*>(easy_), CURLINFO_PRETRANSFER_TIME_T, &until_sent);
    if (until_sent == 0) return now - progressed_ >= connect_ + limit;
    is_sent_ = true;
    progressed_ = now;
  }
  const bool is_upload = !is_answered_ && !of_->request.body.empty();
  return now - progressed_ >= (is_upload ? uploads_wait * limit : limit);
}

void curl_transfer::count(std::size_t bytes) {
  counted_bytes_ += bytes;
  if (counted_bytes_ < bytes_of_progress) return;
  counted_bytes_ = 0;
  progressed_ = clock::now();
}

bool curl_transfer::may_send(int local_port) {
  long made_connections = 0;  // 0: the transfer uses an earlier one
  curl().easy_getinfo(static_cast<CURL*>(easy_), CURLINFO_NUM_CONNECTS, &made_connections);
  is_stale_ = made_connections == 0 && sockets_.has_unread(local_port);
  return !is_stale_;
}

bool curl_transfer::take_header(std::string_view line) {
  header_bytes_ += line.size();
  if (header_bytes_ > most_header_bytes) return false;
  http_response& head = of_->head;
  if (line.starts_with("HTTP/")) {  // also the answer after a redirect, or after "100 Continue"
    head.headers.clear();
    head.status = 0;
    const std::size_t blank = line.find(' ');
    if (blank != std::string_view::npos)
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), head.status);
    if (head.status < 200) return true;  // a server could send any number of them
    is_sent_ = is_answered_ = true;
    progressed_ = clock::now();
    return true;
  }
  const std::size_t colon = line.find(':');
  // After the body come trailers, which are not headers.
  if (colon == std::string_view::npos || has_begun_) return true;
  head.headers.emplace_back(in_lower_case(line.substr(0, colon)), std::string(without_blanks(line.substr(colon + 1))));
  return true;
}

bool curl_transfer::begin_answer() {
  has_begun_ = true;
  const char* url = nullptr;
  curl().easy_getinfo(static_cast<CURL*>(easy_), CURLINFO_EFFECTIVE_URL, &url);
  of_->head.url = url != nullptr ? url : of_->request.url;
  curl_off_t until_sent = 0;  // microseconds
  curl().easy_getinfo(static_cast<CURL*>(easy_), CURLINFO_PRETRANSFER_TIME_T, &until_sent);
  of_->sent_at = began_ + std::chrono::microseconds(until_sent);
  of_->answered_at = clock::now();
  is_refused_ = !of_->sink->begin(of_->head);
  return !is_refused_;
}

bool curl_transfer::take_body(std::span<const std::byte> bytes) {
  if (!has_begun_ && !begin_answer()) return false;
  count(bytes.size());
  is_refused_ = !of_->sink->take(bytes);
  return !is_refused_;
}

std::size_t curl_transfer::give_body(std::span<std::byte> out) {
  const auto left = of_->request.body.subspan(given_bytes_);
  const std::size_t size = std::min(out.size(), left.size());
  if (size != 0) std::memcpy(out.data(), left.data(), size);
  given_bytes_ += size;
  is_sent_ = true;
  progressed_ = clock::now();
  return size;
}

bool curl_transfer::rewind_body(std::int64_t to) {
  if (to < 0 || static_cast<std::size_t>(to) > of_->request.body.size()) return false;
  given_bytes_ = static_cast<std::size_t>(to);
  return true;
}

void curl_transfer::finish(int code) {
  try {
    if (code == CURLE_OK && !has_begun_) begin_answer();  // there was no body
  } catch (...) {
    lacks_memory_ = true;
  }
  of_->curl_code = code;
  of_->ended_at = clock::now();
  if (lacks_memory_)
    set_out_of_memory(*of_);
  else if (is_refused_)
    of_->end = attempt::ending::refused;
  else if (code == CURLE_OK)
    of_->end = attempt::ending::answered;
  else if (header_bytes_ > most_header_bytes)
    set_failed(*of_, code, "the answer has more than 256 KiB of headers");
  else
    set_failed(*of_, code, message_[0] != '\0' ? message_.data() : curl().easy_strerror(static_cast<CURLcode>(code)));
}

}  // namespace shardmesh::remote
