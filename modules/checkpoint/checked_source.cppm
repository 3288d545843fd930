// SPDX-License-Identifier: Apache-2.0
// checked_source: compares a chunk's checksum while its bytes are read front to back for another purpose.
export module shardmesh.checkpoint:checked_source;

import shardmesh.std;
import shardmesh.core;
import :reader;
import :storage;
import :xxh3;

namespace shardmesh {

/// The source of an opened chunk. While reads ascend without gaps over the chunk's stored bytes, they are summed; the
/// read that completes them fails with errc::checksum_mismatch when the sum is not the stored one. Reads in any other
/// order end the checking, quietly. Thread-safe.
class checked_source final : public byte_source {
 public:
  explicit checked_source(std::shared_ptr<const opened_chunk> chunk);
  std::int64_t size_bytes() const override { return chunk_->source->size_bytes(); }
  std::string name() const override { return chunk_->source->name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;

  const opened_chunk& chunk() const { return *chunk_; }
  /// True when the chunk has a checksum at all.
  static bool can_check(const opened_chunk& chunk) { return chunk.digest || chunk.crc_length > 0; }

 private:
  result<void> sum(std::int64_t offset, std::span<const std::byte> bytes) const;
  std::shared_ptr<const opened_chunk> chunk_;
  std::int64_t end_ = 0;
  mutable std::mutex lock_;
  mutable std::int64_t next_ = 0;  // -1: no longer in order
  mutable std::uint32_t crc32_ = 0;
  mutable xxh3_stream sum_;
};

}  // namespace shardmesh
