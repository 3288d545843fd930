// SPDX-License-Identifier: Apache-2.0
// The two receivers of bodies: a short answer that is kept, and a range that goes to the caller's memory once its
// headers are those of the request. Internal to `remote`.
module shardmesh.remote:answer_sinks;

import shardmesh.std;
import shardmesh.core;
import :attempt;
import :failure;
import :http_client;

namespace shardmesh::remote {

// Keeps a body of at most `limit_bytes`.
class kept_body final : public body_sink {
 public:
  explicit kept_body(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  bool begin(const http_response&) override { return true; }
  bool take(std::span<const std::byte> bytes) override;

  bool is_too_long() const { return is_too_long_; }
  std::vector<std::byte>& bytes() { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::int64_t limit_bytes_;
  bool is_too_long_ = false;
  std::vector<std::byte> bytes_;
};

// The range and version that the answer to a request must have.
struct expected_range {
  std::int64_t offset = 0, total_bytes = 0;
  std::string version;  // the ETag; empty for any
};

// Receives one range. It writes to `out` alone, and only when the answer's headers are right.
class range_body final : public body_sink {
 public:
  range_body(const expected_range& expected, std::span<std::byte> out) : expected_(expected), out_(out) {}
  bool begin(const http_response& head) override;
  bool take(std::span<const std::byte> bytes) override;

  // Returns the failure of an attempt that has ended, or nothing when `out` has its bytes.
  std::optional<failure> failure_of(const attempt& ended, const http_options& options) const;
  std::string_view text() const { return text_; }

 private:
  // A wrong answer. The driver's thread must not allocate much, so the error is built later.
  enum class problem { none, whole_object, wrong_range, other_size, other_version, encoded, wrong_length, too_long };
  problem check(const http_response& head) const;
  error error_of(problem found, const http_response& head) const;

  expected_range expected_;
  std::span<std::byte> out_;
  std::size_t received_ = 0;
  bool is_refusal_ = false;  // a status without the range: the body is text
  problem problem_ = problem::none;
  std::string text_;
};

}  // namespace shardmesh::remote
