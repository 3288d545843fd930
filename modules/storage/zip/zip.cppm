// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a ZIP archive and its records, with ranged reads. Writing is in `torch_file::archive`; the
// meaning of the records is in `torch_file`.
export module shardmesh.storage:zip;

import shardmesh.std;
import shardmesh.core;
import :source;

export namespace shardmesh {

/// A source whose head and tail are read once and kept, because an archive's small records and directory lie there.
/// Reads inside either are served from memory; others go to the source. A source no larger than both is read whole,
/// once.
class windowed_source final : public byte_source {
 public:
  /// Reads the windows. `source` must outlive the result. errc::io.
  static result<windowed_source> open(const byte_source& source, std::int64_t head_bytes = 8192,
                                      std::int64_t tail_bytes = 8192);
  std::int64_t size_bytes() const override { return source_->size_bytes(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  std::string name() const override { return source_->name(); }
  std::optional<file_range> plain_file() const override { return source_->plain_file(); }
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return source_->stored_bytes(offset, length);
  }

 private:
  explicit windowed_source(const byte_source& source) : source_(&source) {}
  const byte_source* source_;
  std::vector<std::byte> head_, tail_;
};

/// One record, on which the central directory and its local header agree.
struct zip_record {
  std::string name;
  std::uint16_t method = 0;  // 0 stored, 8 deflated
  std::uint16_t flags = 0;
  std::uint32_t crc32 = 0;  // of the uncompressed bytes; 0 may mean that the writer computed none
  std::int64_t compressed_bytes = 0;
  std::int64_t size_bytes = 0;
  std::int64_t header_offset = 0;
  /// Start of its (compressed) bytes, after the local header; negative when the header contradicts the directory.
  std::int64_t offset = -1;
  std::array<std::byte, 2> beginning{};  // the first two of these bytes; zeros when there are none
  /// Start of the next record or of the directory: the record's bytes end before it.
  std::int64_t limit = 0;
};

/// The records of an archive, in the order of the directory.
class zip_directory {
 public:
  /// Reads the end records and the central directory, and compares every local header with the directory. All readers
  /// of archives begin here, so that they, and every writer, refuse an archive that contradicts itself.
  /// \param contradictions  if given, collects the errors of local headers; the `offset` of their records stays
  ///                        negative
  /// \errors errc::bad_format, naming the file: no directory, counts or extents that do not agree, a comment that could
  ///         be an end record, duplicate names (also when only case differs, unless they are NumPy arrays, "*.npy"),
  ///         overlapping records, encryption, several disks, a ZIP64 end record that does not lie directly before its
  ///         locator, extra fields that are cut off or contradict their record, a record that is marked as a folder
  ///         and has bytes, a local header (signature, name, method, flags, CRC-32, sizes) that does not match the
  ///         directory
  /// Cost: two reads of the source (one for a small archive behind a `windowed_source`), and one per local header or
  /// per run of adjacent small records. A directory of more than 1 MiB is read in pieces. O(records log records).
  /// Source: PKWARE APPNOTE 6.3; sizes come from the directory only, because PyTorch leaves them 0 in local headers.
  static result<zip_directory> read(const byte_source& source, std::vector<error>* contradictions = nullptr);

  std::span<const zip_record> records() const { return records_; }
  /// Returns the record with this name; null when there is none.
  const zip_record* find(std::string_view name) const;

 private:
  std::vector<zip_record> records_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// Returns whether the first bytes are those of a ZIP archive. Cost: one read of 4 bytes.
bool looks_like_zip(const byte_source& source);

/// Returns the uncompressed bytes of a record.
/// \errors errc::bad_format, also when the record is larger than `limit_bytes`, compressed or not; errc::unsupported
///         for a method other than 0 and 8; those of `check_readable`; errc::checksum_mismatch when `check_crc` and the
///         directory has a CRC (not 0) that differs
result<std::vector<std::byte>> read_record(const byte_source& source, const zip_record& record,
                                           std::int64_t limit_bytes, bool check_crc = true);

/// Inflates raw deflate data.
/// \errors errc::bad_format when the data does not inflate to exactly `size_bytes`
result<std::vector<std::byte>> inflate(std::span<const std::byte> compressed, std::int64_t size_bytes);

}  // namespace shardmesh
