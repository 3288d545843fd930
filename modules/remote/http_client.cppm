// SPDX-License-Identifier: Apache-2.0
// http_client: requests over HTTP/1.1 with pooled connections. libcurl moves the bytes. This file decides what is
// believed, retried, and given up: every answer is checked against the request before its bytes count.
export module shardmesh.remote:http_client;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The limits of requests. Times are whole seconds or fractions of it.
struct http_options {
  /// Connections to one host, and so requests at a time.
  int connections = 16;
  /// Without a byte for this long, a request counts as stalled and is repeated.
  std::chrono::milliseconds stall{5'000};
  std::chrono::milliseconds connect{5'000};
  /// All attempts of one request together.
  std::chrono::milliseconds total{120'000};
  int attempts = 8;
  /// A file of certificates that replaces the system's (tests).
  std::string ca_file{};
};

/// A request. The bodies of requests are repeated with them, so they must stay as they are until the answer.
struct http_request {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::span<const std::byte> body{};
  /// False: redirects are answers. True: they are followed, without `authorization` to another host.
  bool follow_redirects = false;
};

/// An answer. Header names are in lower case.
struct http_response {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::vector<std::byte> body{};
  /// The URL that answered, after redirects.
  std::string url{};
  std::string_view header(std::string_view name) const;
};

/// A range of an object, and where its bytes go.
struct http_range {
  std::int64_t offset = 0;
  std::span<std::byte> out;
};

/// Called before each attempt, to sign it: signatures contain the time. It may change URL and headers.
using http_signer = std::function<result<void>(http_request& request)>;

/// Thread-safe: one thread of its own drives all transfers of the client, and callers wait. In a forked child, calls
/// fail with an error.
class http_client {
 public:
  explicit http_client(http_options options = {});
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  /// Sends a request and returns the answer of any status below 500 but 408 and 429; those, and failures of the
  /// connection, are repeated with full jitter, after `Retry-After` if the server gives it.
  /// \param limit_bytes  an answer with a longer body is an error (errc::bad_format)
  /// \errors errc::io when all attempts failed, naming the last failure; errc::deadline_exceeded; errc::cancelled
  result<http_response> send(const http_request& request, std::int64_t limit_bytes, const http_signer& sign = {},
                             const call_options& call = {}) const;

  /// Reads ranges of one object straight into the caller's memory. Long ranges are cut into parts of 8 MiB, which
  /// travel at the same time; a part that fails is repeated alone.
  /// \param version     the ETag that the object must have ("" for any): If-Match is sent, and the answer is compared
  /// \param total_bytes the size that the object must have
  /// \errors errc::io, also when status, Content-Range, length, or version of an answer are not those of the request
  result<void> read(const http_request& object, std::span<const http_range> ranges, const std::string& version,
                    std::int64_t total_bytes, const http_signer& sign = {}, const call_options& call = {}) const;

 private:
  struct engine;
  std::unique_ptr<engine> engine_;
};

}  // namespace shardmesh
