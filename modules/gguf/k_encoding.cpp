// SPDX-License-Identifier: Apache-2.0
// Quantizes values to Q4_K and Q6_K. A fit of each sub-block tries several scales, and keeps the one with the smallest
// error weighted by the values' magnitudes. All sums are float32, in the order of the elements, as in the reference.
module;
#include "block_bytes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
module shardmesh.gguf;

import :block_encoding;

// The reference rounds after each operation.
#pragma STDC FP_CONTRACT OFF

namespace shardmesh::gguf {
namespace {

using namespace block_bytes;

constexpr int elements = 256;

// No scale within float16 reaches larger values. The bound also keeps the sums of a fit finite.
constexpr float largest = 1e9F;

bool can_be_fitted(const float* values) {
  return std::all_of(values, values + elements, [](float value) { return std::fabs(value) <= largest; });  // no NaN
}

// Returns the nearest integer, ties to even, of a value within ±2^22: it is in the last bits of the sum.
int nearest(float value) {
  const float shifted = value + 12582912.0F;  // 3 * 2^22
  return static_cast<int>(small_floats::as_bits(shifted) & 0x7FFFFFU) - 0x400000;
}

// Codes of a sub-block, for value = scale * code + offset.
struct affine_fit {
  static constexpr int size = 32, most = 15;
  float scale = 0, offset = 0;  // offset <= 0
  std::array<int, size> codes{};
};

std::array<int, affine_fit::size> codes_of(const float* values, float inverse, float offset) {
  std::array<int, affine_fit::size> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float shifted = values[i] - offset;
    codes[i] = std::clamp(nearest(inverse * shifted), 0, affine_fit::most);
  }
  return codes;
}

float error_of(const float* values, const float* weights, const affine_fit& fit) {
  float sum = 0;
  for (std::size_t i = 0; i < fit.codes.size(); ++i) {
    const float product = fit.scale * static_cast<float>(fit.codes[i]);
    const float decoded = product + fit.offset;
    const float difference = decoded - values[i];
    const float square = difference * difference;
    const float weighted = weights[i] * square;
    sum += weighted;
  }
  return sum;
}

// Finds the scale and offset that fit these codes best, by least squares. Returns false when the codes determine none.
bool solve(const float* values, const float* weights, float sum_weights, float sum_values, affine_fit& fit) {
  float sum_codes = 0, sum_squares = 0, sum_products = 0;
  for (std::size_t i = 0; i < fit.codes.size(); ++i) {
    const auto code = static_cast<float>(fit.codes[i]);
    const float weighted = weights[i] * code;
    const float square = weighted * code, product = weighted * values[i];
    sum_codes += weighted;
    sum_squares += square;
    sum_products += product;
  }
  const float first = sum_weights * sum_squares, second = sum_codes * sum_codes;
  const float determinant = first - second;
  if (!(determinant > 0)) return false;
  const float scale_first = sum_weights * sum_products, scale_second = sum_values * sum_codes;
  const float offset_first = sum_squares * sum_values, offset_second = sum_codes * sum_products;
  fit.scale = (scale_first - scale_second) / determinant;
  fit.offset = (offset_first - offset_second) / determinant;
  if (fit.offset > 0) {
    fit.offset = 0;
    fit.scale = sum_products / sum_squares;
  }
  return true;
}

affine_fit fit_affine(const float* values, const float* weights) {
  constexpr int tries = 20;
  float least = values[0], greatest = values[0];
  float sum_weights = weights[0], sum_values = weights[0] * values[0];
  for (int i = 1; i < affine_fit::size; ++i) {
    if (values[i] < least) least = values[i];
    if (values[i] > greatest) greatest = values[i];
    const float weighted = weights[i] * values[i];
    sum_weights += weights[i];
    sum_values += weighted;
  }
  affine_fit best;
  best.offset = std::min(least, 0.0F);
  const float range = greatest - best.offset;
  const float inverse = static_cast<float>(affine_fit::most) / range;
  if (range == 0 || !std::isfinite(inverse)) return best;  // all values are equal, or almost zero
  best.scale = 1 / inverse;
  best.codes = codes_of(values, inverse, best.offset);
  float best_error = error_of(values, weights, best);
  // The offset that the search starts from is that of the best fit so far.
  for (int i = 0; i <= tries; ++i) {
    const float step = 0.1F * static_cast<float>(i);
    const float codes_in_range = -1.0F + step + static_cast<float>(affine_fit::most);
    affine_fit fit;
    fit.codes = codes_of(values, codes_in_range / (greatest - best.offset), best.offset);
    if (!solve(values, weights, sum_weights, sum_values, fit)) continue;
    const float fit_error = error_of(values, weights, fit);
    if (!(fit_error < best_error)) continue;
    best = fit;
    best_error = fit_error;
  }
  return best;
}

// Fits codes -32 to 31 of a sub-block, stored with 32 added, for value = scale * code.
struct scale_fit {
  static constexpr int size = 16, half_range = 32;
  float scale = 0;
  std::array<int, size> codes{};
};

struct scale_sums {
  std::array<int, scale_fit::size> codes{};
  float products = 0, squares = 0;
};

scale_sums sums_with(const float* values, float inverse) {
  scale_sums made;
  for (std::size_t i = 0; i < made.codes.size(); ++i) {
    const int code = std::clamp(nearest(inverse * values[i]), -scale_fit::half_range, scale_fit::half_range - 1);
    made.codes[i] = code + scale_fit::half_range;
    const float weight = values[i] * values[i];
    const float weighted_value = weight * values[i], weighted_code = weight * static_cast<float>(code);
    const float product = weighted_value * static_cast<float>(code), square = weighted_code * static_cast<float>(code);
    made.products += product;
    made.squares += square;
  }
  return made;
}

// Smaller values count as zero. Source: GROUP_MAX_EPS of ggml
constexpr float almost_zero = 1e-15F;

scale_fit fit_scale(const float* values) {
  const float extreme = extreme_of(values, scale_fit::size);
  scale_fit best;
  if (std::fabs(extreme) < almost_zero) return best;
  const scale_sums start = sums_with(values, static_cast<float>(-scale_fit::half_range) / extreme);
  best.codes = start.codes;
  best.scale = start.squares != 0 ? start.products / start.squares : 0;
  float gain = best.scale * start.products;
  for (int i = -9; i <= 9; ++i) {
    if (i == 0) continue;
    const float step = 0.1F * static_cast<float>(i);
    const float codes_in_range = static_cast<float>(scale_fit::half_range) + step;
    const scale_sums sums = sums_with(values, -codes_in_range / extreme);
    const float squared = sums.products * sums.products, needed = gain * sums.squares;
    if (!(sums.squares > 0) || !(squared > needed)) continue;
    best.codes = sums.codes;
    best.scale = sums.products / sums.squares;
    gain = best.scale * sums.products;
  }
  return best;
}

// A quantized scale or minimum of 6 bits, as an unsigned byte first.
int six_bits(float value) {
  return std::min<int>(static_cast<std::uint8_t>(nearest(value)), 63);
}

}  // namespace

bool encode_q4_k(const float* values, std::uint8_t* block) {
  constexpr std::size_t parts = 8;
  if (!can_be_fitted(values)) return false;
  std::array<affine_fit, parts> fits;
  float most_scale = 0, most_minimum = 0;
  for (std::size_t p = 0; p < parts; ++p) {
    const float* const part = values + affine_fit::size * p;
    float squares = 0;
    for (int i = 0; i < affine_fit::size; ++i) {
      const float square = part[i] * part[i];
      squares += square;
    }
    const float average = std::sqrt(squares / affine_fit::size);
    std::array<float, affine_fit::size> weights{};
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = average + std::fabs(part[i]);
    fits[p] = fit_affine(part, weights.data());
    most_scale = std::max(most_scale, fits[p].scale);
    most_minimum = std::max(most_minimum, -fits[p].offset);
  }
  std::memset(block, 0, 144);
  if (!store_half(block, most_scale / 63) || !store_half(block + 2, most_minimum / 63)) return false;
  const float inverse_scale = most_scale > 0 ? 63 / most_scale : 0;
  const float inverse_minimum = most_minimum > 0 ? 63 / most_minimum : 0;
  const float scale_unit = half(block), minimum_unit = half(block + 2);
  std::uint8_t* const packed = block + 4;
  for (std::size_t p = 0; p < parts; ++p) {
    affine_fit& fit = fits[p];
    const int scale = six_bits(inverse_scale * fit.scale), minimum = six_bits(inverse_minimum * -fit.offset);
    if (p < 4) {
      packed[p] = static_cast<std::uint8_t>(packed[p] | scale);
      packed[p + 4] = static_cast<std::uint8_t>(packed[p + 4] | minimum);
    } else {
      packed[p + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[p - 4] = static_cast<std::uint8_t>(packed[p - 4] | (scale >> 4) << 6);
      packed[p] = static_cast<std::uint8_t>(packed[p] | (minimum >> 4) << 6);
    }
    const float part_scale = scale_unit * static_cast<float>(scale);
    const float part_minimum = minimum_unit * static_cast<float>(minimum);
    if (part_scale == 0) continue;  // as in the reference: the codes of the fit remain
    for (std::size_t i = 0; i < fit.codes.size(); ++i) {
      const float shifted = values[affine_fit::size * p + i] + part_minimum;
      fit.codes[i] = std::clamp(nearest(shifted / part_scale), 0, affine_fit::most);
    }
  }
  for (std::size_t p = 0; p < parts; p += 2)
    for (std::size_t i = 0; i < affine_fit::size; ++i)
      block[16 + 16 * p + i] = static_cast<std::uint8_t>(fits[p].codes[i] | fits[p + 1].codes[i] << 4);
  return true;
}

bool encode_q6_k(const float* values, std::uint8_t* block) {
  constexpr std::size_t parts = 16;
  if (!can_be_fitted(values)) return false;
  std::array<scale_fit, parts> fits;
  std::array<float, parts> scales{};
  for (std::size_t p = 0; p < parts; ++p) {
    fits[p] = fit_scale(values + scale_fit::size * p);
    scales[p] = fits[p].scale;
  }
  const float extreme = extreme_of(scales.data(), parts);
  std::memset(block, 0, 210);
  if (std::fabs(extreme) < almost_zero) return true;
  const float inverse = -128 / extreme;
  if (!store_half(block + 208, 1 / inverse)) return false;
  const float unit = half(block + 208);
  for (std::size_t p = 0; p < parts; ++p) {
    const int scale = std::min(nearest(inverse * fits[p].scale), 127);
    block[192 + p] = static_cast<std::uint8_t>(static_cast<std::int8_t>(scale));
    const float part_scale = unit * static_cast<float>(scale);
    if (part_scale == 0) continue;  // as in the reference: the codes of the fit remain
    for (std::size_t i = 0; i < fits[p].codes.size(); ++i) {
      const int code = nearest(values[scale_fit::size * p + i] / part_scale);
      fits[p].codes[i] = std::clamp(code, -scale_fit::half_range, scale_fit::half_range - 1) + scale_fit::half_range;
    }
  }
  const auto code_of = [&](std::size_t i) { return fits[i / scale_fit::size].codes[i % scale_fit::size]; };
  for (std::size_t group = 0; group < 2; ++group)
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t first = 128 * group + i;
      const int a = code_of(first), b = code_of(first + 32), c = code_of(first + 64), d = code_of(first + 96);
      block[64 * group + i] = static_cast<std::uint8_t>((a & 15) | (c & 15) << 4);
      block[64 * group + i + 32] = static_cast<std::uint8_t>((b & 15) | (d & 15) << 4);
      block[128 + 32 * group + i] = static_cast<std::uint8_t>(a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (d >> 4) << 6);
    }
  return true;
}

}  // namespace shardmesh::gguf
