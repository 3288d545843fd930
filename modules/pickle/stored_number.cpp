// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.pickle;

import :stored_number;

namespace shardmesh::pickle {

std::string decimal_of_line(std::string_view digits) {
  if (digits.ends_with('L')) digits.remove_suffix(1);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return (negative && digits != "0" ? "-" : "") + std::string(digits);
}

std::string decimal_of_bytes(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> limbs((bytes.size() + 3) / 4, 0);
  const bool negative = !bytes.empty() && std::to_integer<int>(bytes.back()) >= 0x80;
  std::uint32_t carry = negative ? 1 : 0;
  for (std::size_t i = 0; i < limbs.size() * 4; ++i) {
    std::uint32_t byte = i < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i]) : (negative ? 0xff : 0);
    if (negative) {
      byte = (byte ^ 0xff) + carry;
      carry = byte >> 8;
      byte &= 0xff;
    }
    limbs[i / 4] |= byte << (8 * (i % 4));
  }
  std::string digits;
  while (!limbs.empty()) {
    std::uint64_t remainder = 0;
    for (std::size_t i = limbs.size(); i-- > 0;) {
      remainder = remainder << 32 | limbs[i];
      limbs[i] = static_cast<std::uint32_t>(remainder / 1'000'000'000);
      remainder %= 1'000'000'000;
    }
    while (!limbs.empty() && limbs.back() == 0) limbs.pop_back();
    for (int i = 0; i < 9; ++i, remainder /= 10) digits += static_cast<char>('0' + remainder % 10);
  }
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::optional<std::int64_t> int_of_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  // Padding never reaches this far; checking it on every call would be quadratic.
  if (bytes.size() > 64) return std::nullopt;
  const std::byte fill = std::to_integer<int>(bytes.back()) >= 0x80 ? std::byte{0xff} : std::byte{0};
  std::array<std::byte, 8> low;
  low.fill(fill);
  std::copy_n(bytes.begin(), std::min<std::size_t>(bytes.size(), 8), low.begin());
  for (std::size_t i = 8; i < bytes.size(); ++i)
    if (bytes[i] != fill) return std::nullopt;
  const auto number = static_cast<std::int64_t>(little_endian(low.data(), 8));
  if (bytes.size() > 8 && (number < 0) != (fill != std::byte{0})) return std::nullopt;
  return number;
}

}  // namespace shardmesh::pickle
