// SPDX-License-Identifier: Apache-2.0
// Not exported: the first bytes of a delta, which locate its description.
module shardmesh.delta:file_header;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;

namespace shardmesh::delta {

inline constexpr std::int64_t header_bytes = 64;
inline constexpr std::int64_t least_block_bytes = 64, most_block_bytes = std::int64_t{16} << 20;

struct file_header {
  std::int64_t block_bytes = 0;
  std::int64_t description_offset = 0, description_bytes = 0;  // up to the end of the file
  digest128 description;                                       // XXH3-128
};

std::vector<std::byte> format_header(const file_header& header);

// Reads and checks the header of a file.
// \errors errc::bad_format for another file and for a file that was cut; errc::unsupported for another version;
//         errc::checksum_mismatch; errc::io
result<file_header> read_header(const byte_source& file);

}  // namespace shardmesh::delta
