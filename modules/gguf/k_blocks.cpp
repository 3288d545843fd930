// SPDX-License-Identifier: Apache-2.0
// Decodes K blocks: 256 elements in sub-blocks of 16 or 32, whose scales are themselves quantized.
module;
#include "block_bytes.hpp"

#include <cstdint>
module shardmesh.gguf;

import :block_decoding;

// The reference rounds after each operation.
#pragma STDC FP_CONTRACT OFF

namespace shardmesh::gguf {
namespace {

using namespace block_bytes;

constexpr int elements = 256;

// Codes of 2 bits: 128 elements share 32 bytes, 32 elements for each pair of bits.
int code_of_2_bits(const std::uint8_t* codes, int i) {
  return codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// Codes of 4 bits: 64 elements share 32 bytes, 32 elements for each half.
int code_of_4_bits(const std::uint8_t* codes, int i) {
  return codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

// One more bit for each element: bit i / 32 of byte i % 32.
int high_bit(const std::uint8_t* bits, int i) {
  return bits[i % 32] >> (i / 32) & 1;
}

// The eight scales and minima of 6 bits in 12 bytes, of Q4_K and Q5_K.
struct scale_and_minimum {
  int scale, minimum;
};
scale_and_minimum unpack(const std::uint8_t* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[4 + i] & 63};
  const int low = packed[4 + i];  // four bits of each
  return {(low & 15) | (packed[i - 4] >> 2 & 0x30), low >> 4 | (packed[i] >> 2 & 0x30)};
}

// scale * code - minimum, for 32 elements at a time.
template <class CodeOf>
void decode_with_minima(const std::uint8_t* block, float* to, CodeOf code_of) {
  const float scales = half(block), minima = half(block + 2);
  for (int i = 0; i < elements; ++i) {
    const scale_and_minimum part = unpack(block + 4, i / 32);
    const float scale = scales * static_cast<float>(part.scale);
    const float minimum = minima * static_cast<float>(part.minimum);
    const float product = scale * static_cast<float>(code_of(i));
    to[i] = product - minimum;
  }
}

}  // namespace

void decode_q2_k(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 84, to += elements) {
    const float scales = half(blocks + 80), minima = half(blocks + 82);
    for (int i = 0; i < elements; ++i) {
      const int packed = blocks[i / 16];
      const float scale = scales * static_cast<float>(packed & 15);
      const float minimum = minima * static_cast<float>(packed >> 4);
      const float product = scale * static_cast<float>(code_of_2_bits(blocks + 16, i));
      to[i] = product - minimum;
    }
  }
}

void decode_q3_k(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 110, to += elements) {
    const std::uint8_t *high_bits = blocks, *codes = blocks + 32, *packed = blocks + 96;
    const float scales = half(blocks + 108);
    for (int i = 0; i < elements; ++i) {
      const int part = i / 16;
      const int low = packed[part % 8] >> (part / 8 * 4) & 15, high = packed[8 + part % 4] >> (part / 4 * 2) & 3;
      const float scale = scales * static_cast<float>((low | high << 4) - 32);
      const int code = code_of_2_bits(codes, i) - (high_bit(high_bits, i) == 0 ? 4 : 0);
      to[i] = scale * static_cast<float>(code);
    }
  }
}

void decode_q4_k(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 144, to += elements)
    decode_with_minima(blocks, to, [&](int i) { return code_of_4_bits(blocks + 16, i); });
}

void decode_q5_k(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 176, to += elements)
    decode_with_minima(blocks, to,
                       [&](int i) { return code_of_4_bits(blocks + 48, i) | high_bit(blocks + 16, i) << 4; });
}

void decode_q6_k(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 210, to += elements) {
    const std::uint8_t *low_bits = blocks, *high_bits = blocks + 128, *packed = blocks + 192;
    const float scales = half(blocks + 208);
    for (int i = 0; i < elements; ++i) {
      // 128 elements share 64 bytes of low bits, 64 elements for each half.
      const int low = low_bits[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
      const int code = (low | code_of_2_bits(high_bits, i) << 4) - 32;
      const float scale = scales * static_cast<float>(static_cast<std::int8_t>(packed[i / 16]));
      to[i] = scale * static_cast<float>(code);
    }
  }
}

}  // namespace shardmesh::gguf
