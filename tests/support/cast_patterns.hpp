// SPDX-License-Identifier: Apache-2.0
// Reproduces the bit patterns and the hash of tests/oracle/make_casts.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace cast_patterns {

inline std::uint64_t splitmix(std::uint64_t x) {
  std::uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

using words = std::vector<std::uint64_t>;

inline std::uint64_t hash(const words& values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += splitmix(values[i] ^ splitmix(i));
  return sum;
}

inline words floats(const words& exponents, int mantissa_bits, const words& kept) {
  const std::uint64_t low = (std::uint64_t{1} << (mantissa_bits - 4)) - 1;
  words tails{0, 1, low};
  for (const std::uint64_t bits : kept) {
    const std::uint64_t half = std::uint64_t{1} << (static_cast<std::uint64_t>(mantissa_bits) - bits - 1);
    for (const std::uint64_t tail : {half - 1, half, half + 1, 3 * half, 2 * half}) tails.push_back(tail & low);
  }
  words mantissas{0, (std::uint64_t{1} << mantissa_bits) - 1};
  for (std::uint64_t high = 0; high < 16; ++high)
    for (const std::uint64_t tail : tails) mantissas.push_back(high << (mantissa_bits - 4) | tail);
  const int sign = mantissa_bits + (mantissa_bits == 23 ? 8 : 11);
  words made;
  for (std::uint64_t s = 0; s < 2; ++s)
    for (const std::uint64_t e : exponents)
      for (const std::uint64_t m : mantissas) made.push_back(s << sign | e << mantissa_bits | m);
  for (std::uint64_t i = 0; i < 65536; ++i)
    made.push_back(mantissa_bits == 23 ? splitmix(i) & 0xFFFFFFFFu : splitmix(i));
  return made;
}

/// Patterns of one real type, chosen by its size in bytes and whether it is a float.
inline words of(std::string_view name) {
  const auto range = [](std::uint64_t from, std::uint64_t to) {
    words made;
    for (; from < to; ++from) made.push_back(from);
    return made;
  };
  const auto pairs = [](const words& part) {
    words made;
    for (std::size_t i = 0; i < part.size(); ++i) {
      made.push_back(part[i]);
      made.push_back(part[(i * 7 + 3) % part.size()]);
    }
    return made;
  };
  if (name == "complex32") return pairs(of("float16"));
  if (name == "complex64") return pairs(of("float32"));
  if (name == "complex128") return pairs(of("float64"));
  if (name == "bool") return {0, 1};
  if (name == "float32") return floats(range(0, 256), 23, {4, 7, 10});
  if (name == "float64") {
    words exponents{0, 1};
    for (const std::uint64_t e : range(850, 1180)) exponents.push_back(e);
    exponents.push_back(2046);
    exponents.push_back(2047);
    return floats(exponents, 52, {7, 10, 23});
  }
  if (name.ends_with("32") || name.ends_with("64")) {
    words made;
    for (std::uint64_t i = 0; i < 65536; ++i) {
      const std::uint64_t word = splitmix(i) >> (i % 64);
      const std::uint64_t value = i % 2 == 1 ? ~word : word;
      made.push_back(name.ends_with("32") ? value & 0xFFFFFFFFu : value);
    }
    return made;
  }
  return range(0, name.ends_with("16") ? 65536 : 256);
}

inline std::vector<std::byte> to_bytes(const words& values, std::size_t part_bytes) {
  std::vector<std::byte> bytes(values.size() * part_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(bytes.data() + i * part_bytes, &values[i], part_bytes);
  return bytes;
}

inline words to_words(const std::vector<std::byte>& bytes, std::size_t part_bytes) {
  words values(bytes.size() / part_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(&values[i], bytes.data() + i * part_bytes, part_bytes);
  return values;
}

}  // namespace cast_patterns
