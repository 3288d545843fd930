// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the entries of a ZIP archive's central directory. The records' local headers are in
// `local_headers`.
module shardmesh.storage:zip_entry;

import shardmesh.std;
import shardmesh.core;
import :source;
import :zip;
import :zip_end;

namespace shardmesh::zip_reading {

// Reads the directory in pieces: its length is only a claim, and a sparse file can make it as long as the disk.
class directory_window {
 public:
  // `source` must outlive the result.
  directory_window(const byte_source& source, const extent& where)
      : source_(source),
        at_(static_cast<std::int64_t>(where.offset)),
        end_(at_ + static_cast<std::int64_t>(where.length)) {}

  inline std::int64_t left() const { return end_ - at_; }
  // Returns the next `count` bytes, which must exist; valid until the next call.
  result<std::span<const std::byte>> look(std::size_t count);
  // Skips bytes, also those that were never read.
  inline void skip(std::size_t count) { at_ += static_cast<std::int64_t>(count); }

 private:
  const byte_source& source_;
  std::int64_t at_, end_, begin_ = at_;
  std::vector<std::byte> piece_;
};

// Reads the next entry of the directory, which begins at `directory_offset`. The record's limit, offset, and beginning
// are not set.
result<zip_record> read_entry(const byte_source& source, directory_window& directory, std::uint64_t directory_offset);

}  // namespace shardmesh::zip_reading
