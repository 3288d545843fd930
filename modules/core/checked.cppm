// SPDX-License-Identifier: Apache-2.0
// Checked 64-bit arithmetic, so that sizes from files or users never wrap.
export module shardmesh.core:checked;

import shardmesh.std;

export namespace shardmesh {

/// Returns a + b, or nothing when the sum does not fit.
constexpr std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Returns a * b, or nothing when the product does not fit.
constexpr std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Returns the product of the sizes: 1 for no sizes, and 0 when any size is 0, even if the others overflow. Returns
/// nothing when the product does not fit or a size is negative. Cost: O(rank).
constexpr std::optional<std::int64_t> checked_volume(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  bool overflow = false;
  bool zero = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    zero |= size == 0;
    overflow |= __builtin_mul_overflow(product, size, &product);
  }
  if (zero) return 0;
  if (overflow) return std::nullopt;
  return product;
}

}  // namespace shardmesh
