// SPDX-License-Identifier: Apache-2.0
// crc32_of: the CRC-32 of ZIP archives, for bytes that may arrive in pieces.
export module shardmesh.digest:crc32;

import shardmesh.std;

export namespace shardmesh {

/// Returns the CRC-32 of earlier bytes followed by `bytes`; `before` is the CRC-32 of the earlier bytes. Cost: linear.
std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace shardmesh
