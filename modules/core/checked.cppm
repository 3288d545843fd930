// SPDX-License-Identifier: Apache-2.0
// Checked 64-bit arithmetic: sizes that come from files or users never wrap.
export module shardmesh.core:checked;

import shardmesh.std;

export namespace shardmesh {

/// a + b, or nothing when it does not fit.
constexpr std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// a * b, or nothing when it does not fit.
constexpr std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// Product of the sizes; 1 for no sizes, 0 as soon as one is 0 (whatever the others are); nothing when it does not fit
/// or a size is negative. Cost: O(rank).
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
