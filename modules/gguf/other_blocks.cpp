// SPDX-License-Identifier: Apache-2.0
// Decodes blocks whose codes are not numbers: digits of base 3, and indices into a table of sixteen values.
module;
#include "block_bytes.hpp"

#include <array>
#include <cstdint>
module shardmesh.gguf;

import :block_decoding;

// The reference rounds after each operation.
#pragma STDC FP_CONTRACT OFF

namespace shardmesh::gguf {
namespace {

using namespace block_bytes;

// The values of E2M1 codes, doubled to be integers.
constexpr std::array<float, 16> e2m1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// The values of the codes of IQ4_NL and IQ4_XS.
constexpr std::array<float, 16> uneven{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float looked_up(const std::array<float, 16>& table, int code) {
  return table[static_cast<std::size_t>(code)];
}

// Half of 2^(exponent - 127), which the doubled values make up for.
float half_power_of_two(std::uint8_t exponent) {
  return small_floats::as_float(exponent < 2 ? std::uint32_t{0x00200000} << exponent
                                             : static_cast<std::uint32_t>(exponent - 1) << 23);
}

// Half the value of an unsigned E4M3 number with bias 7. The code of NaN counts as 0.
float half_of_e4m3(std::uint8_t bits) {
  if (bits == 0 || bits == 0x7F) return 0;
  const int exponent = bits >> 3 & 15;
  const auto mantissa = static_cast<float>(bits & 7);
  if (exponent == 0) return mantissa * (1.0F / 1024);
  const float power = small_floats::as_float(static_cast<std::uint32_t>(exponent - 8 + 127) << 23);
  return (1 + mantissa / 8) * power;
}

// Digit `place` of base 3, as -1, 0, or 1. The byte is a fraction of 256 with five digits.
float digit(std::uint8_t byte, int place) {
  constexpr std::array<int, 5> powers{1, 3, 9, 27, 81};
  const int shifted = (byte * powers[static_cast<std::size_t>(place)]) & 0xFF;
  return static_cast<float>((shifted * 3 >> 8) - 1);
}

}  // namespace

void decode_tq1_0(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 54) {
    const float scale = half(blocks + 52);
    // Runs of bytes whose digits of one place are consecutive elements.
    const auto decode_run = [&](int first, int bytes, int places) {
      for (int place = 0; place < places; ++place)
        for (int i = 0; i < bytes; ++i) *to++ = scale * digit(blocks[first + i], place);
    };
    decode_run(0, 32, 5);
    decode_run(32, 16, 5);
    decode_run(48, 4, 4);
  }
}

void decode_tq2_0(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 66) {
    const float scale = half(blocks + 64);
    for (int i = 0; i < 256; ++i)
      *to++ = scale * static_cast<float>((blocks[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
  }
}

void decode_iq4_nl(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 18) {
    const float scale = half(blocks);
    for (int i = 0; i < 32; ++i) *to++ = scale * looked_up(uneven, nibble(blocks + 2, i));
  }
}

void decode_iq4_xs(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 136) {
    const float scales = half(blocks);
    const auto high_bits = load<std::uint16_t>(blocks + 2);
    for (int part = 0; part < 8; ++part) {
      const int low = blocks[4 + part / 2] >> (part % 2 * 4) & 15, high = high_bits >> (2 * part) & 3;
      const float scale = scales * static_cast<float>((low | high << 4) - 32);
      for (int i = 0; i < 32; ++i) *to++ = scale * looked_up(uneven, nibble(blocks + 8 + 16 * part, i));
    }
  }
}

void decode_mxfp4(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 17) {
    const float scale = half_power_of_two(blocks[0]);
    for (int i = 0; i < 32; ++i) *to++ = scale * looked_up(e2m1, nibble(blocks + 1, i));
  }
}

void decode_nvfp4(const std::uint8_t* blocks, std::int64_t count, float* to) {
  for (; count > 0; --count, blocks += 36)
    for (int part = 0; part < 4; ++part) {
      const float scale = half_of_e4m3(blocks[part]);
      const std::uint8_t* const codes = blocks + 4 + 8 * part;
      for (int i = 0; i < 16; ++i) *to++ = scale * looked_up(e2m1, i < 8 ? codes[i] & 15 : codes[i - 8] >> 4);
    }
}

}  // namespace shardmesh::gguf
