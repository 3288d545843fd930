// SPDX-License-Identifier: Apache-2.0
// curl_transfer: one attempt as a handle of libcurl. Internal to `remote`. Handles of libcurl are `void*` here, because
// only bodies include its header.
module shardmesh.remote:curl_transfer;

import shardmesh.std;
import :attempt;
import :http_client;
import :open_sockets;

namespace shardmesh::remote {

// Sets the end of an attempt. Without memory for the reason, the attempt has failed for the lack of memory.
void set_failed(attempt& of, int curl_code, const char* reason) noexcept;
void set_out_of_memory(attempt& of) noexcept;

// Used by the driver's thread alone. A lack of memory ends the attempt, and leaves no function as an exception.
class curl_transfer {
 public:
  using clock = std::chrono::steady_clock;

  // `sockets` outlives the connections that the transfer makes.
  curl_transfer(std::shared_ptr<attempt> of, const http_options& options, open_sockets& sockets);
  ~curl_transfer();
  curl_transfer(const curl_transfer&) = delete;
  curl_transfer& operator=(const curl_transfer&) = delete;

  void* handle() const { return easy_; }
  const std::shared_ptr<attempt>& of() const { return of_; }
  // False when libcurl refused a setting; the attempt's reason says which.
  bool is_ready() const { return is_ready_; }
  // True when the transfer has ended before it sent anything, because bytes of another answer waited on its connection,
  // which is closed now. The same attempt may be transferred again.
  bool is_stale() const { return is_stale_; }
  // Returns whether the server has had `limit` without moving enough bytes. libcurl itself limits the connection. After
  // the body of a request has gone to the system's buffers, it may take much longer to arrive and to be answered.
  bool has_stalled(clock::time_point now, std::chrono::milliseconds limit);
  // Sets the end of the attempt. `code` is a CURLcode.
  void finish(int code);

  // Called by libcurl. The first one says whether the request may be sent on a connection with this local port.
  bool may_send(int local_port);
  bool take_header(std::string_view line);
  bool take_body(std::span<const std::byte> bytes);
  std::size_t give_body(std::span<std::byte> out);
  bool rewind_body(std::int64_t to);
  // A callback got no memory. It has told libcurl to end the transfer.
  void note_want_of_memory() noexcept { lacks_memory_ = true; }

 private:
  void set_up(const http_options& options);
  void set_method();
  bool add_headers();
  bool begin_answer();
  void count(std::size_t bytes);
  bool refuse(int code, const char* reason);

  std::shared_ptr<attempt> of_;
  open_sockets& sockets_;
  void* easy_ = nullptr;
  void* headers_ = nullptr;
  std::array<char, 256> message_{};
  std::chrono::milliseconds connect_{};
  bool is_ready_ = true, is_sent_ = false, is_answered_ = false, has_begun_ = false, is_refused_ = false;
  bool is_stale_ = false, lacks_memory_ = false;
  std::size_t header_bytes_ = 0, given_bytes_ = 0, counted_bytes_ = 0;
  clock::time_point began_ = clock::now(), progressed_ = began_;
};

}  // namespace shardmesh::remote
