// SPDX-License-Identifier: Apache-2.0
// Not exported: an array in a file: the record that holds it, its header, and its bytes as a chunk. The text of a
// header is parsed in `array_header`.
module shardmesh.npz:stored_array;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :array_header;

namespace shardmesh::npz {

// One array, and the record that holds it.
struct stored_array {
  std::int64_t offset = 0;        // of the record's bytes in the file
  std::int64_t stored_bytes = 0;  // compressed, if deflated
  std::int64_t size_bytes = 0;    // of header, elements, and anything behind them
  bool is_deflated = false;
  std::uint32_t crc32 = 0;  // of `size_bytes` bytes; 0: unknown
  array_header header;
};

// Reads the header of an array, and checks that the elements are within the record. `path` names the file in `budget`.
result<array_header> read_header(const byte_source& file, const stored_array& array, read_budget& budget,
                                 const std::filesystem::path& path);

// Returns all bytes of an array, decoded.
result<std::shared_ptr<const byte_source>> bytes_of(const std::shared_ptr<const byte_source>& file,
                                                    const stored_array& array, read_budget& budget,
                                                    const std::filesystem::path& path);

// Returns an array of a known type as a chunk. `bytes` are those of `bytes_of`.
opened_chunk chunk_of(const stored_array& array, std::shared_ptr<const byte_source> bytes);

}  // namespace shardmesh::npz
