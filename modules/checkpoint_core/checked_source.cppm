// SPDX-License-Identifier: Apache-2.0
// Compares chunks with their checksums while they are read for another purpose. Checking a whole checkpoint is in
// `verify`; entries that are not read as elements are in `item_records`.
export module shardmesh.checkpoint_core:checked_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :entries;
import :reader;
import :recorded_sums;
import :stored_tensor;

export namespace shardmesh {

/// Returns whether the chunk has a checksum of its own.
inline bool has_checksum(const opened_chunk& chunk) {
  return chunk.digest || chunk.crc_length > 0;
}

/// Compares the chunk's bytes with its own checksums.
/// \returns the number of bytes that a checksum covers; 0 when there is none
/// \errors errc::checksum_mismatch
/// Cost: reads the covered bytes.
result<std::int64_t> check_chunk_bytes(const opened_chunk& chunk);

/// `check_chunk_bytes` for many chunks. A stored range that several chunks share (views of one storage) is read once.
/// Thread-safe.
class storage_sums {
 public:
  explicit storage_sums(const catalog& contents);
  result<std::int64_t> check(const opened_chunk& chunk, const stored_range& place);

 private:
  using key = std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>;
  // An object whose tensors became entries holds several storages at one place: the checksum range tells them apart.
  using storage_key = std::tuple<key, std::int64_t, std::int64_t, std::uint32_t>;
  struct memo {
    detail::call_lock lock;
    std::optional<result<std::int64_t>> outcome;
  };
  std::set<key> shared_;
  std::mutex lock_;
  std::map<storage_key, memo> known_;
};

/// The source of an opened chunk that is expected to be read front to back without gaps. It sums the bytes of each
/// read. The read that completes the chunk fails with errc::checksum_mismatch when a sum differs from the stored one. A
/// read in any other order checks the whole chunk at once, in a separate pass. Thread-safe.
class checked_source final : public byte_source {
 public:
  // `recorded`: the checksum of the whole item, as the hex digits in the folder's record; null: none.
  checked_source(std::shared_ptr<const opened_chunk> chunk, const std::string* recorded);
  std::int64_t size_bytes() const override { return chunk_->source->size_bytes(); }
  std::string name() const override { return chunk_->source->name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  result<void> read_ranges(std::span<const source_range> ranges) const override;
  std::int64_t bytes_per_request() const override { return chunk_->source->bytes_per_request(); }
  bool is_done() const;
  /// Reads the rest of the chunk and compares the sums.
  /// \errors errc::checksum_mismatch
  /// Cost: none when the chunk is already checked.
  result<void> finish() const;

 private:
  result<void> sum_next(std::span<const std::byte> bytes) const;
  result<void> sum(std::int64_t offset, std::span<const std::byte> bytes) const;
  result<void> compare() const;
  result<void> check_disjoint() const;
  std::shared_ptr<const opened_chunk> chunk_;
  const std::string* recorded_;
  std::int64_t end_ = 0;
  mutable std::mutex lock_;
  mutable bool done_ = false;
  mutable std::int64_t next_ = 0;
  mutable std::uint32_t crc32_ = 0;
  mutable xxh3_stream elements_, item_;
};

/// The checks of one run over a reader's chunks (see chunk_source::checking). Thread-safe.
class chunk_checks {
 public:
  chunk_checks(const checkpoint_reader& reader, std::shared_ptr<const recorded_sums> record);
  result<void> read(std::int32_t chunk, const std::shared_ptr<const opened_chunk>& opened, const box& part,
                    const tensor_view& to, const read_options& options);
  /// Finishes the check of every chunk that was read only in part. Errors name key, file, and box.
  result<void> finish();

 private:
  result<std::shared_ptr<const checked_source>> source_of(std::int32_t chunk,
                                                          const std::shared_ptr<const opened_chunk>& opened);
  bool is_checked(std::size_t range);
  void finish(std::int32_t chunk, std::optional<std::size_t> range = {});
  const checkpoint_reader& reader_;
  std::shared_ptr<const recorded_sums> record_;
  storage_sums sums_;
  std::mutex lock_;
  std::vector<bool> done_, range_done_;  // per chunk, per range of the record
  std::unordered_map<std::int32_t, std::shared_ptr<const checked_source>> being_read_;
};

}  // namespace shardmesh
