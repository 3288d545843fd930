// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
module shardmesh.digest;

namespace shardmesh {

std::string hex_digits(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    hex += digits[std::to_integer<unsigned>(b >> 4)];
    hex += digits[std::to_integer<unsigned>(b & std::byte{15})];
  }
  return hex;
}

std::string hex_digits(std::string_view bytes) {
  return hex_digits(std::as_bytes(std::span(bytes)));
}

}  // namespace shardmesh
