// SPDX-License-Identifier: Apache-2.0
// Decodes blocks of 32 elements with one scale: value = scale * code, or scale * code + minimum.
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

constexpr int elements = 32;

// Returns code `i` of 5 bits. `high` has bit 4 of every code.
int code_of_5_bits(const std::uint8_t* codes, std::uint32_t high, int i) {
  return nibble(codes, i) | static_cast<int>(high >> i & 1U) << 4;
}

}  // namespace

void decode_q4_0(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 18) {
    const float scale = half(blocks);
    for (int i = 0; i < elements; ++i) *to++ = scale * static_cast<float>(nibble(blocks + 2, i) - 8);
  }
}

void decode_q4_1(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 20) {
    const float scale = half(blocks), minimum = half(blocks + 2);
    for (int i = 0; i < elements; ++i) {
      const float product = scale * static_cast<float>(nibble(blocks + 4, i));
      *to++ = product + minimum;
    }
  }
}

void decode_q5_0(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 22) {
    const float scale = half(blocks);
    const auto high = load<std::uint32_t>(blocks + 2);
    for (int i = 0; i < elements; ++i) *to++ = scale * static_cast<float>(code_of_5_bits(blocks + 6, high, i) - 16);
  }
}

void decode_q5_1(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 24) {
    const float scale = half(blocks), minimum = half(blocks + 2);
    const auto high = load<std::uint32_t>(blocks + 4);
    for (int i = 0; i < elements; ++i) {
      const float product = scale * static_cast<float>(code_of_5_bits(blocks + 8, high, i));
      *to++ = product + minimum;
    }
  }
}

void decode_q8_0(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 34) {
    const float scale = half(blocks);
    for (int i = 0; i < elements; ++i) *to++ = static_cast<float>(static_cast<std::int8_t>(blocks[2 + i])) * scale;
  }
}

}  // namespace shardmesh::gguf
