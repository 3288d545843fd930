// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>
module shardmesh.torch_file;

import :long_integer;

namespace shardmesh::torch_file {

std::optional<std::vector<std::byte>> pickle_of_digits(std::string_view digits) {
  constexpr std::size_t most_digits = 4400;  // as many as `object_json` prints; the cost grows with their square
  const bool is_negative = digits.starts_with('-');
  if (is_negative) digits.remove_prefix(1);
  if (digits.empty() || digits.size() > most_digits) return std::nullopt;
  std::vector<std::uint8_t> number(1);
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (std::uint8_t& byte : number) {
      carry += 10u * byte;
      byte = static_cast<std::uint8_t>(carry);
      carry >>= 8;
    }
    if (carry > 0) number.push_back(static_cast<std::uint8_t>(carry));
  }
  if (number.back() >= 0x80) number.push_back(0);  // the highest bit is the sign
  unsigned borrow = 1;
  for (std::uint8_t& byte : number) {
    if (!is_negative) break;
    borrow += static_cast<std::uint8_t>(~byte);
    byte = static_cast<std::uint8_t>(borrow);
    borrow >>= 8;
  }
  // torch.load(weights_only=True) knows only LONG1.
  const bool is_short = number.size() < 256;
  std::vector<std::byte> made{std::byte{0x80}, std::byte{2}, is_short ? std::byte{0x8a} : std::byte{0x8b}};
  for (int shift = 0; shift < (is_short ? 8 : 32); shift += 8)
    made.push_back(static_cast<std::byte>(number.size() >> shift));
  for (const std::uint8_t byte : number) made.push_back(std::byte{byte});
  made.push_back(std::byte{'.'});
  return made;
}

}  // namespace shardmesh::torch_file
