// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.digest;

namespace shardmesh {

std::string to_hex(const digest128& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

std::optional<digest128> parse_digest(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  digest128 digest;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const std::size_t value = std::string_view("0123456789abcdef").find(hex[i]);
    if (value == std::string_view::npos) return std::nullopt;
    std::uint64_t& half = i < 16 ? digest.high : digest.low;
    half = half << 4 | value;
  }
  return digest;
}

}  // namespace shardmesh
