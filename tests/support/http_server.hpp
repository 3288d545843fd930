// SPDX-License-Identifier: Apache-2.0
// A web server on a free port of the loopback interface, with faults on request. It serves ranges of objects in memory,
// and answers that tests compute. It uses no code of the library.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace http_server {

/// Requests to this machine must not go to a proxy of the environment. Set before any thread can read it.
inline const int without_proxy = ::setenv("no_proxy", "127.0.0.1,localhost", 1);

/// Faults of one answer about an object.
enum class fault {
  none,
  reset_at_once,      // the connection is reset instead of an answer
  reset,              // in the middle of the body
  close_early,        // the same, without a reset
  unavailable,        // 503 with `Retry-After: 0`
  too_many,           // 429
  internal_error,     // 500
  forbidden,          // 403
  wrong_range,        // Content-Range begins one byte later
  wrong_total,        // Content-Range states another size of the object
  unknown_total,      // Content-Range states "*"
  whole_object,       // 200 with all bytes
  short_length,       // Content-Length states half of the bytes, and no more come
  long_body,          // a chunked body with more bytes than the range
  stall_at_once,      // no answer
  stall,              // in the middle of the body
  drip,               // a byte at a time
  endless_headers,    // a header line at a time
  other_etag,         // another version of the object
  no_etag,            // no version
  gzip,               // states a Content-Encoding
  redirect,           // to `redirect_to`
  redirect_in_circle  // to the same URL
};

/// A request as it arrived. Names of headers are in lower case.
struct request {
  std::string method, target, body;
  std::map<std::string, std::string> headers;

  std::string path() const { return target.substr(0, target.find('?')); }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

/// Formats an answer. `headers` are whole lines, each with its line break.
inline std::string answer(int status, const std::string& body, const std::string& headers = {}) {
  return "HTTP/1.1 " + std::to_string(status) + " Status\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

class server {
 public:
  server() {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool is_open = listener_ >= 0 && ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                         ::listen(listener_, 64) == 0 &&
                         ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    if (!is_open) std::abort();
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~server() {
    {
      const std::scoped_lock guard(lock_);
      is_ending_ = true;
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
      ended_.notify_all();
    }
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    ::close(listener_);
    for (std::thread& one : threads_) one.join();
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  /// The URL of a path, which begins with "/". `host` is another name of this machine.
  std::string url(const std::string& path, const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port_) + path;
  }

  // The functions below may be called while requests are being answered.

  /// Adds or replaces an object, with this ETag.
  void put(const std::string& path, std::string content, const std::string& etag = "\"1\"") {
    const std::scoped_lock guard(lock_);
    objects_[path] = {std::move(content), etag};
  }
  /// Answers all requests for a path with `make`, which returns a whole answer. It runs under the server's lock: it
  /// must call no function of the server, and a test that has called `seen` may read what it wrote.
  void on(const std::string& path, std::function<std::string(const request&)> make) {
    const std::scoped_lock guard(lock_);
    made_[path] = std::move(make);
  }
  /// The next requests for objects get these faults, in order.
  void plan(std::deque<fault> faults) {
    const std::scoped_lock guard(lock_);
    planned_ = std::move(faults);
  }
  /// All requests for objects without a planned fault get this one.
  void always(fault one) {
    const std::scoped_lock guard(lock_);
    usual_ = one;
  }
  void redirect_to(const std::string& url) {
    const std::scoped_lock guard(lock_);
    redirect_to_ = url;
  }
  /// The requests so far.
  std::vector<request> seen() const {
    const std::scoped_lock guard(lock_);
    return seen_;
  }
  void forget_seen() {
    const std::scoped_lock guard(lock_);
    seen_.clear();
  }

 private:
  struct object {
    std::string content, etag;
  };

  void accept_all() {
    for (;;) {
      const int fd = ::accept(listener_, nullptr, nullptr);
      const std::scoped_lock guard(lock_);
      if (is_ending_ || fd < 0) {
        if (fd >= 0) ::close(fd);
        if (is_ending_) return;
        continue;
      }
      // Otherwise a body waits 40 ms for the acknowledgement of its headers.
      const int sends_at_once = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &sends_at_once, sizeof sends_at_once);
      open_.push_back(fd);
      threads_.emplace_back([this, fd] {
        std::string buffered;
        while (serve(fd, buffered)) {
        }
        const std::scoped_lock closing(lock_);
        open_.remove(fd);
        ::close(fd);
      });
    }
  }

  static bool receive(int fd, std::string& to) {
    char bytes[65536];
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got > 0) to.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  }
  static bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Waits until the server ends, or for the time; returns whether it goes on.
  bool wait(std::optional<std::chrono::milliseconds> time = {}) {
    std::unique_lock guard(lock_);
    if (time)
      ended_.wait_for(guard, *time, [this] { return is_ending_; });
    else
      ended_.wait(guard, [this] { return is_ending_; });
    return !is_ending_;
  }

  static std::optional<request> parse(int fd, std::string& buffered) {
    std::size_t end = 0;
    while ((end = buffered.find("\r\n\r\n")) == std::string::npos)
      if (!receive(fd, buffered)) return std::nullopt;
    const std::string head = buffered.substr(0, end + 2);
    buffered.erase(0, end + 4);
    request made;
    const std::size_t method = head.find(' '), target = head.find(' ', method + 1);
    made.method = head.substr(0, method);
    made.target = head.substr(method + 1, target - method - 1);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      const std::size_t value = std::min(head.find_first_not_of(' ', colon + 1), line);
      made.headers[name] = head.substr(value, line - value);
      at = line + 2;
    }
    const std::size_t length = std::strtoull(made.header("content-length").c_str(), nullptr, 10);
    while (buffered.size() < length)
      if (!receive(fd, buffered)) return std::nullopt;
    made.body = buffered.substr(0, length);
    buffered.erase(0, length);
    return made;
  }

  /// Answers one request. Returns whether the connection stays open.
  bool serve(int fd, std::string& buffered) {
    const auto asked = parse(fd, buffered);
    if (!asked) return false;
    std::function<std::string(const request&)> make;
    std::optional<object> found;
    fault own = fault::none;
    {
      const std::scoped_lock guard(lock_);
      seen_.push_back(*asked);
      if (const auto made = made_.find(asked->path()); made != made_.end()) {
        make = made->second;
      } else if (const auto at = objects_.find(asked->path()); at != objects_.end()) {
        found = at->second;
        own = usual_;
        if (!planned_.empty()) {
          own = planned_.front();
          planned_.pop_front();
        }
      }
    }
    if (!make && !found) make = [](const request&) { return answer(404, "no"); };
    if (make) {
      std::string whole;
      {
        const std::scoped_lock guard(lock_);
        whole = make(*asked);
      }
      return send_all(fd, asked->method == "HEAD" ? head_of(whole) : whole);
    }
    return serve_object(fd, *asked, *found, own);
  }

  static std::string head_of(const std::string& whole) { return whole.substr(0, whole.find("\r\n\r\n") + 4); }

  /// The faults that replace the answer. Nothing: the object is sent.
  std::optional<bool> serve_refusal(int fd, const request& asked, fault own) {
    std::string to;
    {
      const std::scoped_lock guard(lock_);
      to = redirect_to_;
    }
    switch (own) {
      case fault::reset_at_once:
        return reset(fd);
      case fault::unavailable:
        return send_all(fd, answer(503, "slow down", "Retry-After: 0\r\n"));
      case fault::too_many:
        return send_all(fd, answer(429, "slow down"));
      case fault::internal_error:
        return send_all(fd, answer(500, "failed"));
      case fault::forbidden:
        return send_all(fd, answer(403, "<Code>AccessDenied</Code><Message>no</Message>"));
      case fault::redirect:
        return send_all(fd, answer(302, "", "Location: " + to + "\r\n"));
      case fault::redirect_in_circle:
        return send_all(fd, answer(302, "", "Location: " + asked.target + "\r\n"));
      case fault::stall_at_once:
        return wait();
      case fault::endless_headers: {
        bool goes_on = send_all(fd, "HTTP/1.1 206 Status\r\n");
        while (goes_on && wait(std::chrono::milliseconds(20))) goes_on = send_all(fd, "X-More: 1\r\n");
        return false;
      }
      default:
        return std::nullopt;
    }
  }

  static bool reset(int fd) {
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    return false;
  }

  bool serve_object(int fd, const request& asked, const object& found, fault own) {
    if (const auto answered = serve_refusal(fd, asked, own)) return *answered;
    const std::string match = asked.header("if-match");
    if (!match.empty() && match != found.etag) return send_all(fd, answer(412, ""));
    std::uint64_t first = 0, last = 0;
    const std::string range = asked.header("range");
    const bool is_range = std::sscanf(range.c_str(), "bytes=%lu-%lu", &first, &last) == 2 && own != fault::whole_object;
    if (is_range && last >= found.content.size()) return send_all(fd, answer(416, ""));
    std::string body = is_range ? found.content.substr(first, last - first + 1) : found.content;
    std::string head = std::string("HTTP/1.1 ") + (is_range ? "206" : "200") + " Status\r\nAccept-Ranges: bytes\r\n";
    if (is_range) {
      const std::string total = own == fault::unknown_total
                                    ? "*"
                                    : std::to_string(found.content.size() + (own == fault::wrong_total ? 1 : 0));
      const std::uint64_t begin = first + (own == fault::wrong_range ? 1 : 0);
      head += "Content-Range: bytes " + std::to_string(begin) + "-" + std::to_string(last) + "/" + total + "\r\n";
    }
    if (own != fault::no_etag)
      head += "ETag: " + (own == fault::other_etag ? std::string("\"other\"") : found.etag) + "\r\n";
    if (own == fault::gzip) head += "Content-Encoding: gzip\r\n";
    if (own == fault::short_length) body.resize(body.size() / 2);
    if (own == fault::long_body) {
      head += "Transfer-Encoding: chunked\r\n\r\n";
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", body.size() + 100);
      return send_all(fd, head + size + body + std::string(100, 'x') + "\r\n0\r\n\r\n");
    }
    head += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
    if (asked.method == "HEAD") return send_all(fd, head);
    if (!send_all(fd, head)) return false;
    return send_body(fd, body, own);
  }

  bool send_body(int fd, const std::string& body, fault own) {
    const std::string_view half(body.data(), body.size() / 2);
    switch (own) {
      case fault::reset:
        return send_all(fd, half) && reset(fd);
      case fault::close_early:
        send_all(fd, half);
        return false;
      case fault::stall:
        return send_all(fd, half) && wait();
      case fault::drip:
        for (const char& one : body)
          if (!send_all(fd, {&one, 1}) || !wait(std::chrono::milliseconds(20))) return false;
        return true;
      default:
        return send_all(fd, body);
    }
  }

  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex lock_;
  std::condition_variable ended_;
  bool is_ending_ = false;
  std::list<int> open_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
  std::map<std::string, object> objects_;
  std::map<std::string, std::function<std::string(const request&)>> made_;
  std::deque<fault> planned_;
  fault usual_ = fault::none;
  std::string redirect_to_;
  std::vector<request> seen_;
};

}  // namespace http_server
