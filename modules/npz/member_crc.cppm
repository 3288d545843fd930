// SPDX-License-Identifier: Apache-2.0
// Not exported: the CRC-32 of a record that consists of a header and elements, of which one part is known.
module shardmesh.npz:member_crc;

import shardmesh.std;

namespace shardmesh::npz {

// Returns the CRC-32 of bytes with the CRC-32 `first` followed by `second_bytes` bytes with the CRC-32 `second`.
std::uint32_t joined_crc32(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes);

// Returns the CRC-32 that the last `second_bytes` bytes must have, when all bytes have the CRC-32 `whole`, and those
// before them `first`. A change in either part alters the result or the sum, so one pass over the elements checks both.
std::uint32_t remaining_crc32(std::uint32_t whole, std::uint32_t first, std::int64_t second_bytes);

}  // namespace shardmesh::npz
