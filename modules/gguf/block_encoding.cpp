// SPDX-License-Identifier: Apache-2.0
module;
#include "block_bytes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
module shardmesh.gguf;

import :block_encoding;

// The reference rounds after each operation.
#pragma STDC FP_CONTRACT OFF

namespace shardmesh::gguf {
namespace {

using namespace block_bytes;

constexpr int elements = 32;
using codes_of_block = std::array<int, elements>;

bool all_finite(const float* values) {
  return std::all_of(values, values + elements, [](float value) { return std::isfinite(value); });
}

// Returns 1 / scale, or 0 for a scale whose inverse is not finite: such a scale is zero as a float16.
float inverse_of(float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

// Rounds non-negative values by truncation, and keeps them within the codes.
int truncated(float value, int most) {
  return std::clamp(static_cast<int>(value), 0, most);
}

// Codes of a scale without a minimum: the extreme value gets the lowest code.
codes_of_block signed_codes(const float* values, float inverse, int half_range) {
  codes_of_block codes{};
  for (int i = 0; i < elements; ++i) {
    const float scaled = values[i] * inverse;
    codes[static_cast<std::size_t>(i)] =
        truncated(scaled + (static_cast<float>(half_range) + 0.5F), 2 * half_range - 1);
  }
  return codes;
}

// Codes of a scale and a minimum.
codes_of_block shifted_codes(const float* values, float minimum, float inverse, int most) {
  codes_of_block codes{};
  for (int i = 0; i < elements; ++i) {
    const float shifted = values[i] - minimum;
    const float scaled = shifted * inverse;
    codes[static_cast<std::size_t>(i)] = truncated(scaled + 0.5F, most);
  }
  return codes;
}

// Stores the low four bits of the codes: the first sixteen in the low halves of the bytes.
void store_nibbles(std::uint8_t* to, const codes_of_block& codes) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

// Stores bit 4 of the codes.
void store_high_bits(std::uint8_t* to, const codes_of_block& codes) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) bits |= static_cast<std::uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(to, &bits, sizeof bits);
}

bool encode_q4_0(const float* values, std::uint8_t* block) {
  if (!all_finite(values)) return false;
  const float scale = extreme_of(values, elements) / -8;
  if (!store_half(block, scale)) return false;
  store_nibbles(block + 2, signed_codes(values, inverse_of(scale), 8));
  return true;
}

bool encode_q5_0(const float* values, std::uint8_t* block) {
  if (!all_finite(values)) return false;
  const float scale = extreme_of(values, elements) / -16;
  if (!store_half(block, scale)) return false;
  const codes_of_block codes = signed_codes(values, inverse_of(scale), 16);
  store_high_bits(block + 2, codes);
  store_nibbles(block + 6, codes);
  return true;
}

bool encode_q4_1(const float* values, std::uint8_t* block) {
  const float minimum = *std::min_element(values, values + elements);
  const float scale = (*std::max_element(values, values + elements) - minimum) / 15;
  if (!all_finite(values) || !store_half(block, scale) || !store_half(block + 2, minimum)) return false;
  store_nibbles(block + 4, shifted_codes(values, minimum, inverse_of(scale), 15));
  return true;
}

bool encode_q5_1(const float* values, std::uint8_t* block) {
  const float minimum = *std::min_element(values, values + elements);
  const float scale = (*std::max_element(values, values + elements) - minimum) / 31;
  if (!all_finite(values) || !store_half(block, scale) || !store_half(block + 2, minimum)) return false;
  const codes_of_block codes = shifted_codes(values, minimum, inverse_of(scale), 31);
  store_high_bits(block + 4, codes);
  store_nibbles(block + 8, codes);
  return true;
}

bool encode_q8_0(const float* values, std::uint8_t* block) {
  if (!all_finite(values)) return false;
  const float scale = std::fabs(extreme_of(values, elements)) / 127;
  if (!store_half(block, scale)) return false;
  const float inverse = inverse_of(scale);
  // Ties round away from zero.
  for (int i = 0; i < elements; ++i) {
    const float scaled = values[i] * inverse;
    block[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::round(scaled)));
  }
  return true;
}

}  // namespace

block_encoder encoder_of(tensor_type type) {
  switch (type) {
    case tensor_type::q4_0:
      return encode_q4_0;
    case tensor_type::q4_1:
      return encode_q4_1;
    case tensor_type::q5_0:
      return encode_q5_0;
    case tensor_type::q5_1:
      return encode_q5_1;
    case tensor_type::q8_0:
      return encode_q8_0;
    case tensor_type::q4_k:
      return encode_q4_k;
    case tensor_type::q6_k:
      return encode_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace shardmesh::gguf
