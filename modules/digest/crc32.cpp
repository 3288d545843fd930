// SPDX-License-Identifier: Apache-2.0
module;
#include <libdeflate.h>

#include <cstddef>
#include <cstdint>
#include <span>
module shardmesh.digest;

namespace shardmesh {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  return bytes.empty() ? before : libdeflate_crc32(before, bytes.data(), bytes.size());  // of null it is 0
}

}  // namespace shardmesh
