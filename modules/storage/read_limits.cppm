// SPDX-License-Identifier: Apache-2.0
// read_limits: what reading one checkpoint may cost, whatever its files say; read_budget counts it over the whole run.
// Not here: the limits of one number (ranks, depths), which stand where they are checked.
export module shardmesh.storage:read_limits;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Limits of one opened checkpoint. Each grows with what was really read, so that no honest file meets one: metadata
/// becomes some ten times its bytes in memory, compressed weights rarely shrink to a half.
struct read_limits {
  /// Largest pickle, JSON header or index that is read: `.metadata`, `data.pkl`, a record of checksums.
  std::int64_t description_bytes = std::int64_t{1} << 30;
  /// What is made of descriptions (entries, chunks, names, JSON): this, and `built_per_byte` for each of their bytes.
  std::int64_t built_bytes = std::int64_t{1} << 28;
  std::int64_t built_per_byte = 64;
  /// What deflate and zstd streams decode to: this, and `decoded_per_byte` for each encoded byte.
  std::int64_t decoded_bytes = std::int64_t{1} << 30;
  std::int64_t decoded_per_byte = 16;
  /// Bytes of tensors beyond those that are stored (expanded views, many views of one storage): this, and
  /// `expanded_per_byte` for each stored byte.
  std::int64_t expanded_bytes = std::int64_t{1} << 30;
  std::int64_t expanded_per_byte = 16;

  /// Every limit, `factor` (at least 1) times as high; saturates.
  read_limits times(std::int64_t factor) const;
};

/// Counts what one reader has spent. Thread-safe. Once something is refused, `refusal` keeps the first error, so that
/// one attack gives one line.
class read_budget {
 public:
  explicit read_budget(const read_limits& limits = {}) : limits_(limits) {}
  const read_limits& limits() const { return limits_; }

  /// Says that so many bytes of descriptions were read.
  void add_description(std::int64_t bytes) { described_ += bytes; }
  /// Spends bytes of what is built. errc::bad_format beyond the limit.
  result<void> build(std::int64_t bytes);
  /// What may still be built.
  std::int64_t left_to_build() const;
  /// Bytes that a stream of `encoded` bytes may decode to, now; any number for a `place` that was counted.
  std::int64_t left_to_decode(const std::string& place, std::int64_t encoded) const;
  /// Spends decoded bytes; the same `place` (any text that names the stream) counts once. errc::bad_format.
  result<void> decode(const std::string& place, std::int64_t encoded, std::int64_t decoded);
  /// Spends bytes of tensors beyond the `stored` ones. errc::bad_format.
  result<void> expand(std::int64_t beyond, std::int64_t stored);

  /// The first error of a limit, with the key and file it was given; nothing when no limit was met.
  std::optional<error> refusal() const;
  /// Remembers `problem` as the refusal when it is one of a limit; returns the first.
  error keep(error problem);

 private:
  read_limits limits_;
  std::atomic<std::int64_t> described_{0}, built_{0};
  mutable std::mutex lock_;
  std::int64_t decoded_ = 0, encoded_ = 0, beyond_ = 0, stored_ = 0;
  std::set<std::string> decoded_places_;
  std::optional<error> refusal_;
};

/// The error of a limit: what it is about, the limit, and how to raise it.
error beyond_limit(std::string what, std::int64_t limit, std::string_view unit = "bytes");
/// True for an error that `beyond_limit` made.
bool is_beyond_limit(const error& problem);

}  // namespace shardmesh
