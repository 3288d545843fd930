// SPDX-License-Identifier: Apache-2.0
module;
#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>
#include <span>
module shardmesh.digest;

namespace shardmesh {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // ISA-L returns another value for a null pointer
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace shardmesh
