// SPDX-License-Identifier: Apache-2.0
// Small random numbers from a seed: the same on every rank that has the seed. Include before imports.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>

class dice {
 public:
  explicit dice(std::uint64_t seed) : random_(seed) {}
  /// 0 to n - 1; 0 if n is not positive.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1)));
  }
  std::int64_t up_to(std::int64_t most) { return below(most + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  /// An index below `n`.
  std::size_t one_of(std::size_t n) { return static_cast<std::size_t>(below(static_cast<std::int64_t>(n))); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }
  std::mt19937_64& engine() { return random_; }

 private:
  std::mt19937_64 random_;
};
