// SPDX-License-Identifier: Apache-2.0
// Conversions of 16- and 8-bit float formats to and from float32 bits, with PyTorch's values
// (c10/util/{Half,BFloat16,Float8_*}.h). Bits travel as integers, so that signalling NaNs survive. Plain C++17 with few
// branches, for the host and for devices.
#pragma once
#include <shardmesh/kernels/function.hpp>

#include <cstdint>
#include <cstring>

namespace shardmesh::small_floats {

SHARDMESH_KERNEL_FUNCTION inline float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Converts float16. NaNs keep their sign and payload and become quiet, as with the vcvtph2ps instruction.
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) return sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x00400000u : 0u);
  if (exponent != 0) return sign | ((exponent + 112) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  std::uint32_t shifted = 113;
  for (; (mantissa & 0x400u) == 0; mantissa <<= 1) --shifted;
  return sign | (shifted << 23) | ((mantissa & 0x3FFu) << 13);
}

SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_bfloat16(std::uint16_t bits) {
  return static_cast<std::uint32_t>(bits) << 16;
}

/// Rounds a magnitude below the format's overflow limit to the format's bits without sign, to nearest even. Subnormals
/// are rounded by adding a power of two whose last place is the smallest subnormal.
template <int Mantissa, int Bias>
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t round_magnitude(std::uint32_t magnitude) {
  constexpr int shift = 23 - Mantissa;
  constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - Bias) << 23;
  constexpr std::uint32_t magic = static_cast<std::uint32_t>(127 + 1 - Bias - Mantissa + 23) << 23;
  const std::uint32_t subnormal = as_bits(as_float(magnitude) + as_float(magic)) - magic;
  const std::uint32_t odd = (magnitude >> shift) & 1u;
  const std::uint32_t normal =
      (magnitude - (static_cast<std::uint32_t>(127 - Bias) << 23) + ((1u << (shift - 1)) - 1) + odd) >> shift;
  return magnitude < smallest_normal ? subnormal : normal;
}

/// Converts to float16. NaNs keep their sign and upper payload bits and become quiet, as with the vcvtps2ph
/// instruction.
SHARDMESH_KERNEL_FUNCTION inline std::uint16_t to_float16(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = round_magnitude<10, 15>(magnitude);
  if (magnitude >= 0x477FF000u) half = 0x7C00u;
  if (magnitude > 0x7F800000u) half = 0x7E00u | ((magnitude >> 13) & 0x1FFu);
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000u));
}

/// Converts to bfloat16. Every NaN becomes `nan`: PyTorch's vector code writes 0xFFFF, its scalar code 0x7FC0.
SHARDMESH_KERNEL_FUNCTION inline std::uint16_t to_bfloat16(std::uint32_t bits, std::uint16_t nan) {
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : static_cast<std::uint16_t>(rounded);
}

/// Converts to float8_e4m3fn with saturation: values beyond 448, even infinity, become 448 (PyTorch 2.13; older
/// versions made them NaN).
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_float8_e4m3fn(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t rounded = magnitude >= 0x43E00000u ? 0x7Eu : round_magnitude<3, 7>(magnitude);  // 448
  if (magnitude > 0x7F800000u) rounded = 0x7Fu;
  return static_cast<std::uint8_t>(rounded | ((bits >> 24) & 0x80u));
}
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_float8_e5m2(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t rounded = magnitude >= 0x47800000u ? 0x7Cu : round_magnitude<2, 15>(magnitude);  // 65536
  if (magnitude > 0x7F800000u) rounded = 0x7Fu;
  return static_cast<std::uint8_t>(rounded | ((bits >> 24) & 0x80u));
}
/// Converts to an fnuz format: one zero, one NaN (0x80), no infinity.
template <int Mantissa, int Bias>
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_fnuz(std::uint32_t bits, std::uint32_t limit) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t rounded = magnitude >= limit ? 0x80u : round_magnitude<Mantissa, Bias>(magnitude);
  if (rounded >= 0x80u) return 0x80u;
  return static_cast<std::uint8_t>(rounded == 0 ? 0u : rounded | ((bits >> 24) & 0x80u));
}
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_float8_e4m3fnuz(std::uint32_t bits) {
  return to_fnuz<3, 8>(bits, 0x43800000u);
}  // 256
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_float8_e5m2fnuz(std::uint32_t bits) {
  return to_fnuz<2, 16>(bits, 0x47800000u);
}  // 65536

/// Converts to float8_e8m0fnu: a power of two, without the sign. Infinities and NaN become 0xFF. Ties round up for
/// normal numbers, because their implied bit is odd, and down for subnormal ones.
SHARDMESH_KERNEL_FUNCTION inline std::uint8_t to_float8_e8m0fnu(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 23) & 0xFFu;
  const std::uint32_t mantissa = bits & 0x7FFFFFu;
  if (exponent == 0xFF) return 0xFF;
  const bool up = exponent != 0 ? mantissa >= 0x400000u : mantissa > 0x400000u;
  return static_cast<std::uint8_t>(exponent + (up ? 1u : 0u));
}

/// Converts a format of a sign, `Exponents` bits, and `Mantissa` bits, with this bias, as if all its values were
/// finite. The caller handles the format's NaNs. Every value takes the same steps, so that loops vectorise.
template <int Exponents, int Mantissa, int Bias>
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_finite(std::uint32_t bits) {
  constexpr std::uint32_t mantissa_bits = (1u << Mantissa) - 1;
  const std::uint32_t sign = (bits >> (Exponents + Mantissa)) << 31;
  const std::uint32_t exponent = (bits >> Mantissa) & ((1u << Exponents) - 1);
  const std::uint32_t mantissa = bits & mantissa_bits;
  // The highest bit of a subnormal moves to the place that normal numbers imply.
  std::uint32_t places = 1;
  for (int i = 1; i < Mantissa; ++i) places += mantissa < (1u << (Mantissa - i)) ? 1u : 0u;
  const std::uint32_t lifted = ((mantissa << places) & mantissa_bits) << (23 - Mantissa);
  const std::uint32_t subnormal = mantissa != 0 ? (static_cast<std::uint32_t>(128 - Bias) - places) << 23 | lifted : 0u;
  const std::uint32_t normal = (exponent + 127 - Bias) << 23 | mantissa << (23 - Mantissa);
  return sign | (exponent != 0 ? normal : subnormal);
}
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float8_e4m3fn(std::uint8_t b) {
  return (b & 0x7Fu) == 0x7Fu ? (b & 0x80u) << 24 | 0x7FF00000u : from_finite<4, 3, 7>(b);
}
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float8_e5m2(std::uint8_t b) {
  const std::uint32_t sign = (b & 0x80u) << 24, mantissa = b & 3u;
  const std::uint32_t beyond = sign | 0x7F800000u | mantissa << 21 | (mantissa != 0 ? 0x00400000u : 0u);
  return (b & 0x7Cu) == 0x7Cu ? beyond : from_finite<5, 2, 15>(b);
}
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float8_e4m3fnuz(std::uint8_t b) {
  return b == 0x80u ? 0x7F800001u : from_finite<4, 3, 8>(b);
}
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float8_e5m2fnuz(std::uint8_t b) {
  return b == 0x80u ? 0x7F800001u : from_finite<5, 2, 16>(b);
}
SHARDMESH_KERNEL_FUNCTION constexpr std::uint32_t from_float8_e8m0fnu(std::uint8_t b) {
  if (b == 0xFF) return 0x7F800001u;
  return b == 0 ? 0x00400000u : static_cast<std::uint32_t>(b) << 23;
}

}  // namespace shardmesh::small_floats
