// SPDX-License-Identifier: Apache-2.0
// A random measure of boxes that proves coverage in one pass. Every coordinate of every dimension has a random mark. A
// box measures the product of (mark of its end - mark of its begin) over the dimensions. Measures add up like volumes,
// so boxes that hold every cell once add up to the whole, whatever the marks. For any other boxes, the difference is a
// non-zero polynomial in the marks. By Schwartz and Zippel, it vanishes with probability at most rank / 2^61 per
// measure. This holds however the boxes were chosen, since each process draws its own keys for the marks. The cost per
// box is its rank, whereas comparing corners costs 2^rank. Unlike volumes, measures do not overflow for numbers near
// 2^63. Private to this room.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>

namespace shardmesh::covering {

/// Arithmetic modulo the prime 2^61 - 1; values are at most the prime.
namespace field {

inline constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;

inline std::uint64_t reduce(std::uint64_t value) {
  return (value & prime) + (value >> 61);
}
inline std::uint64_t normal(std::uint64_t value) {
  return value >= prime ? value - prime : value;
}
inline std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  return normal(reduce(a + b));
}
inline std::uint64_t subtract(std::uint64_t a, std::uint64_t b) {
  return normal(a >= b ? a - b : a + prime - b);
}
inline std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return add(static_cast<std::uint64_t>(product) & prime, static_cast<std::uint64_t>(product >> 61));
}

}  // namespace field

/// Two independent values, for two measures computed together.
struct mark {
  std::uint64_t first = 0, second = 0;
};
using which_mark = std::uint64_t mark::*;

/// The marks of all coordinates, from a keyed hash.
class marks {
 public:
  static const marks& of_this_process() {
    static const marks drawn = [] {
      std::random_device source;
      marks m;
      for (std::uint64_t& key : m.keys_) key = (static_cast<std::uint64_t>(source()) << 32) | source();
      return m;
    }();
    return drawn;
  }

  mark at(std::size_t dim, std::int64_t coordinate) const {
    const std::uint64_t mixed = mix(static_cast<std::uint64_t>(coordinate) ^ (keys_[0] + dim * 0x9e3779b97f4a7c15U));
    return {mix(mixed + keys_[1]) >> 3, mix(mixed ^ keys_[2]) >> 3};
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {  // the finaliser of SplitMix64: every bit depends on every bit
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  std::array<std::uint64_t, 3> keys_{};
};

/// Adds up the measures of boxes that are given one after another; `rank` is at most 16. It joins a box with the
/// previous one when they touch face to face, and does the same with the rows that result. Most layouts come in an
/// order in which everything joins to one box.
class tally {
 public:
  static constexpr std::size_t most_dims = 16;

  explicit tally(std::size_t rank) : rank_(rank) {}

  /// Adds a box. Precondition: it is not empty, and its ends fit in 64 bits.
  void add(const std::int64_t* offsets, const std::int64_t* sizes) {
    run& next = incoming_;
    for (std::size_t d = 0; d < rank_; ++d) next.begin[d] = offsets[d], next.end[d] = offsets[d] + sizes[d];
    next.is_set = true;
    put(0);
  }

  /// Returns whether the boxes added so far measure as much as this box. Nothing may be added afterwards.
  bool equals(const std::int64_t* offsets, const std::int64_t* sizes) {
    for (std::size_t level = 0; level < last_.size(); ++level) {
      std::swap(incoming_, last_[level]);
      if (incoming_.is_set) put(level + 1);
      last_[level].is_set = false;
    }
    run& whole = incoming_;
    for (std::size_t d = 0; d < rank_; ++d) whole.begin[d] = offsets[d], whole.end[d] = offsets[d] + sizes[d];
    const mark expected = measure(whole);
    return sum_.first == expected.first && sum_.second == expected.second;
  }

 private:
  struct run {
    bool is_set = false;
    std::array<std::int64_t, most_dims> begin, end;
  };
  struct length {  // of one dimension; most boxes have the same one as the previous box
    bool is_set = false;
    std::int64_t begin = 0, end = 0;
    mark value;
  };

  // Joins the incoming box to the last one of this level; otherwise takes its place and passes it to the next level.
  void put(std::size_t level) {
    for (; level < last_.size(); ++level) {
      run& last = last_[level];
      if (last.is_set && extend(last)) return;
      std::swap(last.is_set, incoming_.is_set);
      for (std::size_t d = 0; d < rank_; ++d) {
        std::swap(last.begin[d], incoming_.begin[d]);
        std::swap(last.end[d], incoming_.end[d]);
      }
      if (!incoming_.is_set) return;
    }
    const mark measured = measure(incoming_);
    sum_ = {field::add(sum_.first, measured.first), field::add(sum_.second, measured.second)};
  }

  // Joins the incoming box to `last` when it continues `last` in one dimension and equals it in all others.
  bool extend(run& last) const {
    std::size_t along = rank_;
    for (std::size_t d = 0; d < rank_; ++d) {
      if (incoming_.begin[d] == last.begin[d] && incoming_.end[d] == last.end[d]) continue;
      if (along != rank_ || incoming_.begin[d] != last.end[d]) return false;
      along = d;
    }
    if (along == rank_) return false;
    last.end[along] = incoming_.end[along];
    return true;
  }

  mark measure(const run& of) {
    const marks& all = marks::of_this_process();
    mark product{1, 1};
    for (std::size_t d = 0; d < rank_; ++d) {
      length& l = lengths_[d];
      if (!l.is_set || l.begin != of.begin[d] || l.end != of.end[d]) {
        const mark begin = all.at(d, of.begin[d]), end = all.at(d, of.end[d]);
        l = {true,
             of.begin[d],
             of.end[d],
             {field::subtract(end.first, begin.first), field::subtract(end.second, begin.second)}};
      }
      product = {field::multiply(product.first, l.value.first), field::multiply(product.second, l.value.second)};
    }
    return product;
  }

  std::size_t rank_;
  run incoming_;
  std::array<run, 2> last_;
  std::array<length, most_dims> lengths_;
  mark sum_;
};

}  // namespace shardmesh::covering
