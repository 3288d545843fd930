// SPDX-License-Identifier: Apache-2.0
module;
#include <zlib.h>

#include <cstdint>
module shardmesh.npz;

import :member_crc;

namespace shardmesh::npz {

std::uint32_t joined_crc32(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) {
  return static_cast<std::uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

std::uint32_t remaining_crc32(std::uint32_t whole, std::uint32_t first, std::int64_t second_bytes) {
  return whole ^ joined_crc32(first, 0, second_bytes);  // joining is linear over GF(2)
}

}  // namespace shardmesh::npz
