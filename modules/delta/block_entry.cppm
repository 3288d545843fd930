// SPDX-License-Identifier: Apache-2.0
// Not exported: the description of one block of a delta. Its stored bytes are made and applied in block_codec.
module shardmesh.delta:block_entry;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;

namespace shardmesh::delta {

// How a block is stored. The values are those in the file.
enum class block_coding : std::uint8_t {
  same,    // as in the base: nothing is stored
  sparse,  // the distances between the changed elements, and each one's XOR with the base's element
  dense,   // the XOR of all elements with the base's, as planes of bytes
  whole,   // all elements, as planes of bytes; the base is not used
};

struct block_entry {
  block_coding coding = block_coding::same;
  bool is_compressed = false;      // the stored bytes are a frame of zstd
  std::int64_t offset = 0;         // of the stored bytes, in the file
  std::int64_t stored_bytes = 0;   // 0 exactly for `same`
  std::int64_t plain_bytes = 0;    // of the stored bytes, decompressed
  digest128 base, result, stored;  // XXH3-128 of the base's elements, of the new elements, and of the stored bytes
};

}  // namespace shardmesh::delta
