// SPDX-License-Identifier: Apache-2.0
// Not exported: the bytes of a ZIP archive around the data of its records, computed without I/O. Records are stored,
// and their data begins at multiples of 64. The headers of arrays are in array_header.
module shardmesh.npz:archive_layout;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::npz {

// A record of the archive.
struct placed_record {
  std::string name;
  std::int64_t size_bytes = 0;  // of its data
  std::int64_t begin = 0;       // of its local header
  std::int64_t data_begin = 0;  // of its data: directly behind the local header
};

// Places records one after the other. A record has ZIP64 fields where its numbers need them.
// Source: PKWARE APPNOTE 6.3
class archive_layout {
 public:
  // Appends a record. \errors errc::overflow
  // \pre the name has at most 65535 bytes
  result<void> add(std::string name, std::int64_t size_bytes);

  std::span<const placed_record> records() const { return records_; }
  // Returns the end of the last record's data, where the directory begins.
  std::int64_t data_end() const { return end_; }
  // Returns the bytes from a record's begin to its data. `crc32` is that of its data.
  std::string local_header(std::size_t record, std::uint32_t crc32) const;
  // Returns all bytes after the last record's data. `crc32`: one per record, those of their data.
  std::string directory(std::span<const std::uint32_t> crc32) const;

 private:
  std::vector<placed_record> records_;
  std::int64_t end_ = 0;
};

}  // namespace shardmesh::npz
