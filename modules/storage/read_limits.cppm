// SPDX-License-Identifier: Apache-2.0
// Limits on the cost of reading one checkpoint, whatever its files claim. `read_budget` counts the cost over the whole
// run. Limits on single numbers (ranks, depths) are beside their checks.
export module shardmesh.storage:read_limits;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Limits of one opened checkpoint. Those on memory grow with the bytes that were really read, so that ordinary files
/// do not reach them. Metadata takes some ten times its size in memory, and compressed weights rarely shrink to half
/// their size.
struct read_limits {
  /// The largest description that is read: a pickle (`.metadata`, `data.pkl`), a manifest, or the description of a GGUF
  /// file or a delta. Safetensors headers, indices, and records of checksums have fixed limits of their own.
  std::int64_t description_bytes = std::int64_t{1} << 30;
  /// Limit on the memory built from descriptions (entries, chunks, names, JSON): this, and `built_per_byte` for each of
  /// their bytes.
  std::int64_t built_bytes = std::int64_t{1} << 28;
  std::int64_t built_per_byte = 64;
  /// Limit on the decoded bytes of deflate and zstd streams: this, and `decoded_per_byte` for each encoded byte.
  std::int64_t decoded_bytes = std::int64_t{1} << 30;
  std::int64_t decoded_per_byte = 16;
  /// Limit on the bytes of tensors beyond the stored ones (expanded views, many views of one storage): this, and
  /// `expanded_per_byte` for each stored byte.
  std::int64_t expanded_bytes = std::int64_t{1} << 30;
  std::int64_t expanded_per_byte = 16;

  /// Returns the limits with each one `factor` (at least 1) times as high; saturates.
  read_limits times(std::int64_t factor) const;
};

/// Counts the cost of one reader. Thread-safe. `refusal` keeps the first refusal, so that one attack yields one
/// message.
class read_budget {
 public:
  explicit read_budget(const read_limits& limits = {}) : limits_(limits) {}
  const read_limits& limits() const { return limits_; }

  /// Counts bytes of descriptions that were read.
  void add_description(std::int64_t bytes) { described_ += bytes; }
  /// Charges bytes of memory that is about to be built. errc::bad_format beyond the limit.
  result<void> build(std::int64_t bytes);
  /// Returns the number of bytes that may still be built.
  std::int64_t left_to_build() const;
  /// Returns the number of bytes that a stream of `encoded` bytes may decode to now; no limit for a `place` that was
  /// counted already.
  std::int64_t left_to_decode(const std::string& place, std::int64_t encoded) const;
  /// Charges decoded bytes. The same `place` (any text that names the stream) counts once. errc::bad_format beyond the
  /// limit.
  result<void> decode(const std::string& place, std::int64_t encoded, std::int64_t decoded);
  /// Charges bytes of tensors beyond the `stored` ones. errc::bad_format beyond the limit.
  result<void> expand(std::int64_t beyond, std::int64_t stored);

  /// Returns the error of the first exceeded limit, with its key and file; nothing when no limit was exceeded.
  std::optional<error> refusal() const;
  /// Replaces the error of an exceeded limit by the refusal, which is the first such error. Returns any other error
  /// unchanged.
  error keep(error problem);

 private:
  read_limits limits_;
  std::atomic<std::int64_t> described_{0}, built_{0};
  mutable std::mutex lock_;
  std::int64_t decoded_ = 0, encoded_ = 0, beyond_ = 0, stored_ = 0;
  std::set<std::string> decoded_places_;
  std::optional<error> refusal_;
};

/// Returns the error of an exceeded limit: what exceeds it, the limit, and how to raise it.
error beyond_limit(std::string what, std::int64_t limit, std::string_view unit = "bytes");
/// Returns whether `beyond_limit` made this error.
bool is_beyond_limit(const error& problem);

}  // namespace shardmesh
