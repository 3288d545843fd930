// SPDX-License-Identifier: Apache-2.0
// crc32_of: the CRC-32 of ZIP archives, of bytes that may arrive in pieces.
export module shardmesh.digest:crc32;

import shardmesh.std;

export namespace shardmesh {

/// Of `bytes` behind those whose sum is `before`. Cost: linear.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace shardmesh
