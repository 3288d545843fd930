// SPDX-License-Identifier: Apache-2.0
// http_client: requests over HTTP/1.1 with pooled connections. libcurl moves the bytes. This room decides which answers
// are accepted, which requests are repeated, and when a call gives up.
export module shardmesh.remote:http_client;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::remote {

/// The limits of a client's requests.
struct http_options {
  /// Requests at a time, over all hosts and calls; at most 4096.
  int connections = 16;
  /// A request that moves less than 4 KiB in this time counts as stalled, and is repeated. A request with a body may
  /// wait for its answer twelve times as long.
  std::chrono::milliseconds stall{5'000};
  /// Limits the look-up of the host's name, the connection, and the TLS handshake together.
  std::chrono::milliseconds connect{5'000};
  /// No request is repeated once this time has passed since its first attempt.
  std::chrono::milliseconds total{120'000};
  /// Attempts of one request, at least 1.
  int attempts = 8;
  /// A file of certificates in PEM form that replaces the system's. Empty: the system's.
  std::string ca_file{};
  /// Hosts that are reached without a proxy, separated by commas, besides those of the variable NO_PROXY.
  std::string direct_hosts{};
};

/// An answer.
struct http_response {
  int status = 0;
  /// Names are in lower case; values have no surrounding blanks.
  std::vector<std::pair<std::string, std::string>> headers{};
  std::vector<std::byte> body{};
  /// The URL that answered, after redirects.
  std::string url{};
  /// Returns the first value of a header, or an empty text. `name` is in lower case.
  std::string_view header(std::string_view name) const;
};

/// A request. Its body must stay unchanged until the call returns, because each attempt sends it.
struct http_request {
  std::string method = "GET";
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::span<const std::byte> body{};
  /// False: a redirect is an answer. True: GET and HEAD follow redirects, never from https to http. The header
  /// Authorization is not sent to another host.
  bool follow_redirects = false;
  /// Called on the caller's thread with an answer of status 300 to 499, except 408 and 429. Returns true when it has
  /// removed the cause (a token that had expired, a region that was wrong). The request is then signed and sent again,
  /// at most twice.
  std::function<bool(const http_request& sent, const http_response& answer)> recover{};
};

/// A range of an object, and the memory for its bytes.
using http_range = source_range;

/// Called on the caller's thread before each attempt, which may come much later than the call. It may change the
/// request's URL and headers, to sign it for example.
using http_signer = std::function<result<void>(http_request& request)>;

/// Thread-safe. One thread of the client drives all transfers, and callers wait. The limits of a request are those of
/// its `call_options`, and those of the call for which the thread works (`detail::call_scope`). In a forked child,
/// calls return errc::invalid_argument. Destruction ends all calls in progress with errc::cancelled. Errors name the
/// URL without its query.
class http_client {
 public:
  /// Throws std::system_error when the process cannot start another thread.
  explicit http_client(http_options options = {});
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  /// Sends a request and returns its answer of any status below 500, except 408 and 429. Those, failed connections, and
  /// statuses from 500 (except 501 and 505) are repeated: after a random time (full jitter), or after `Retry-After`. An
  /// attempt whose answer was lost may have had its effect, which a repeated conditional request then finds.
  /// \param limit_bytes  an answer with a longer body is an error
  /// \errors errc::io naming the last failure; errc::bad_format for a body that is too long; errc::no_memory;
  ///         errc::deadline_exceeded and errc::cancelled within a second; those of `sign`
  result<http_response> send(const http_request& request, std::int64_t limit_bytes, const http_signer& sign = {},
                             const call_options& call = {}) const;

  /// Reads ranges of one object straight into the caller's memory. Long ranges are cut into parts of 8 MiB, which
  /// travel at the same time. Each failed part is repeated alone. A part that takes three times as long as others is
  /// requested a second time. After an error, the content of the ranges' memory is unspecified; other memory is never
  /// written.
  /// \param version     the ETag that the object must have; empty for any
  /// \param total_bytes the size that the object must have
  /// \errors errc::out_of_bounds; errc::io, also when the status, Content-Range, length, encoding, or ETag of an answer
  ///         is wrong; errc::unsupported when the server ignores ranges; errc::deadline_exceeded and errc::cancelled
  ///         within a second; those of `sign`
  result<void> read(const http_request& object, std::span<const http_range> ranges, const std::string& version,
                    std::int64_t total_bytes, const http_signer& sign = {}, const call_options& call = {}) const;

  /// Returns how many bytes the server of an object's URL sends in the time that it takes to answer a request, as
  /// measured by earlier reads: 64 KiB to 8 MiB.
  std::int64_t bytes_per_request(const std::string& url) const;

 private:
  struct engine;
  std::unique_ptr<engine> engine_;
};

}  // namespace shardmesh::remote
