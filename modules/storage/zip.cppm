// SPDX-License-Identifier: Apache-2.0
// zip: the directory of a ZIP archive and its records, from ranged reads. Not here: writing (torch_file::archive), what
// the records mean (torch_file).
export module shardmesh.storage:zip;

import shardmesh.std;
import shardmesh.core;
import :source;

export namespace shardmesh {

/// A source whose head and tail are read once and kept: an archive's small records and directory lie there. Reads that
/// fall inside either are served from memory, others go through. A source no larger than both is read whole, once.
class windowed_source final : public byte_source {
 public:
  /// Reads the windows. `source` must outlive this. errc::io.
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

/// One record, as the central directory and its local header tell it alike.
struct zip_record {
  std::string name;
  std::uint16_t method = 0;  // 0 stored, 8 deflated
  std::uint16_t flags = 0;
  std::uint32_t crc32 = 0;  // of the uncompressed bytes; 0 may mean that the writer computed none
  std::int64_t compressed_bytes = 0;
  std::int64_t size_bytes = 0;
  std::int64_t header_offset = 0;
  /// Of its (compressed) bytes, behind the local header; below 0 when that contradicts the directory.
  std::int64_t offset = -1;
  std::array<std::byte, 2> beginning{};  // the first of these bytes; zeros where there are none
  /// Where the next record or the directory begins: the record's bytes end before it.
  std::int64_t limit = 0;
};

/// The records of an archive, in the order of the directory.
class zip_directory {
 public:
  /// Reads the end records and the central directory, and compares every local header with it. All readers of
  /// archives begin here, so all of them, and every writer, refuse an archive that contradicts itself.
  /// \param contradictions  where given, takes the errors of local headers; their records' `offset` stays below 0
  /// \errors errc::bad_format, naming the file: no directory, counts or extents that do not agree, a comment that could
  ///   be an end record, duplicate names (also when only case differs), overlapping records, encryption, several disks,
  ///   a local header (signature, name, method, flags, CRC-32, sizes) that does not match the directory
  /// Cost: two reads of the source (one for a small archive behind a `windowed_source`), and one for the local header of
  ///   each record, or of small ones that follow each other; a directory of more than 1 MiB is read in pieces.
  ///   O(records log records).
  /// Source: PKWARE APPNOTE 6.3; sizes come from the directory only, as PyTorch leaves them 0 in local headers.
  static result<zip_directory> read(const byte_source& source, std::vector<error>* contradictions = nullptr);

  std::span<const zip_record> records() const { return records_; }
  /// Null when there is none of that name.
  const zip_record* find(std::string_view name) const;

 private:
  std::vector<zip_record> records_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// True when the first bytes are those of a ZIP archive. Cost: one read of 4 bytes.
bool looks_like_zip(const byte_source& source);

/// The uncompressed bytes of a record. \errors errc::bad_format; errc::unsupported for a method other than 0 and 8;
/// errc::invalid_argument when it is larger than `limit_bytes`, packed or not; those of `check_readable`;
/// errc::checksum_mismatch when `check_crc` and the
/// directory has a CRC (not 0) that differs.
result<std::vector<std::byte>> read_record(const byte_source& source, const zip_record& record,
                                           std::int64_t limit_bytes, bool check_crc = true);

/// Inflates raw deflate data that must give exactly `size_bytes`. errc::bad_format otherwise.
result<std::vector<std::byte>> inflate(std::span<const std::byte> compressed, std::int64_t size_bytes);

}  // namespace shardmesh
