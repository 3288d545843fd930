// SPDX-License-Identifier: Apache-2.0
// Not exported: numbers as pickles store them.
module shardmesh.pickle:stored_number;

import shardmesh.std;

namespace shardmesh::pickle {

inline std::uint64_t little_endian(const std::byte* at, std::size_t count) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < count; ++i) number |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  return number;
}

// Returns the decimal digits of an INT or LONG line, without "L", "+", and leading zeros.
std::string decimal_of_line(std::string_view digits);

// Returns the decimal digits of a two's complement little-endian number. Cost: O(bytes^2).
std::string decimal_of_bytes(std::span<const std::byte> bytes);

// Returns a two's complement little-endian number; nothing if it does not fit in 64 bits.
std::optional<std::int64_t> int_of_bytes(std::span<const std::byte> bytes);

}  // namespace shardmesh::pickle
