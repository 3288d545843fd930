// SPDX-License-Identifier: Apache-2.0
// Not exported: finds the central directory of a ZIP archive from its end records. The entries of the directory are in
// `zip_entry`.
module shardmesh.storage:zip_end;

import shardmesh.std;
import shardmesh.core;
import :source;

namespace shardmesh::zip_reading {

// The position of the central directory, and its number of records.
struct extent {
  std::uint64_t offset = 0, length = 0, records = 0;
};

// Finds the directory, which must lie directly before the end records. The end records must agree, and must say that
// the archive is on one disk.
result<extent> find_directory(const byte_source& source);

}  // namespace shardmesh::zip_reading
