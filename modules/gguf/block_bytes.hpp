// SPDX-License-Identifier: Apache-2.0
// Numbers inside quantized blocks, at any address. Only bodies of this room include it.
#pragma once
#include <shardmesh/kernels/small_floats.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace shardmesh::gguf::block_bytes {

template <class Number>
inline Number load(const std::uint8_t* from) {
  Number value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Reads a float16.
inline float half(const std::uint8_t* from) {
  return small_floats::as_float(small_floats::from_float16(load<std::uint16_t>(from)));
}

/// Writes a float16, rounded to nearest even. Returns false for a value that float16 cannot hold as a finite number.
inline bool store_half(std::uint8_t* to, float value) {
  const std::uint16_t bits = small_floats::to_float16(small_floats::as_bits(value));
  std::memcpy(to, &bits, sizeof bits);
  return (bits & 0x7C00u) != 0x7C00u;
}

/// Reads code `i` of codes of 4 bits: the low halves of the 16 bytes first, then the high halves.
inline int nibble(const std::uint8_t* codes, int i) {
  return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
}

/// Returns the first of `count` values with the largest magnitude, or 0 if all are 0. No value is NaN.
/// The magnitude has a variable of its own: Clang 19 with -O3 does not return the first value if a loop of fixed length
/// compares fabs(value) > fabs(extreme).
inline float extreme_of(const float* values, int count) {
  float greatest = 0, extreme = 0;
  for (int i = 0; i < count; ++i)
    if (const float magnitude = std::fabs(values[i]); magnitude > greatest) greatest = magnitude, extreme = values[i];
  return extreme;
}

}  // namespace shardmesh::gguf::block_bytes
