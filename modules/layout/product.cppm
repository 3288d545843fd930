// SPDX-License-Identifier: Apache-2.0
// fragment_product: many fragments as a product of one run axis per dimension. A few numbers describe the intersection
// of a box with a grid of sixteen thousand ranks, without a list. `distribution` makes the products.
export module shardmesh.layout:product;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Indices [begin, begin + size) of a tensor dimension, which begin at `local` in the owner's tensor. `owner` is the
/// run's contribution to the owner's number (see `fragment_product`).
struct owned_run {
  std::int64_t begin = 0, size = 0, local = 0, owner = 0;
  friend constexpr bool operator==(const owned_run&, const owned_run&) = default;
};

/// Ascending runs of one dimension. A series of runs at equal steps takes the memory of one run.
class run_axis {
 public:
  /// Appends `count` runs of the same size after all others: the first is `first`, and each differs from the one before
  /// by `step`. `step.size` is 0.
  constexpr void append(const owned_run& first, std::int64_t count = 1, const owned_run& step = {});

  constexpr std::int64_t size() const { return series_.empty() ? 0 : series_.back().index + series_.back().count; }
  /// Returns run `index`. Cost: O(log series).
  constexpr owned_run operator[](std::int64_t index) const {
    return series_of(index, [](const series& s) { return s.index; }).run(index);
  }
  /// Returns the index of the run that begins at this index of the dimension. Precondition: there is one.
  /// Cost: O(log series).
  constexpr std::int64_t index_of(std::int64_t begin) const {
    const series& s = series_of(begin, [](const series& one) { return one.first.begin; });
    return s.index + (s.step.begin == 0 ? 0 : (begin - s.first.begin) / s.step.begin);
  }
  /// Number of elements in all runs. Cost: O(series).
  constexpr std::int64_t length() const {
    std::int64_t sum = 0;
    for (const series& s : series_) sum += s.count * s.first.size;
    return sum;
  }
  /// The memory that the series take.
  constexpr std::size_t memory_bytes() const { return series_.size() * sizeof(series); }

  /// Iterates over the runs, starting at any of them. Cost of a step: O(1).
  class cursor {
   public:
    constexpr cursor() = default;
    constexpr cursor(const run_axis& axis, std::int64_t index)
        : axis_(&axis), series_(axis.place_of(index, [](const series& s) { return s.index; })), index_(index) {
      run_ = axis.series_[series_].run(index);
    }
    constexpr const owned_run& operator*() const { return run_; }
    constexpr std::int64_t index() const { return index_; }
    /// Moves to the next run. Returns false after the last one, and is then at the first run again.
    constexpr bool next() {
      const series& s = axis_->series_[series_];
      if (++index_ < s.index + s.count) {
        run_.begin += s.step.begin, run_.local += s.step.local, run_.owner += s.step.owner;
        return true;
      }
      const bool more = ++series_ < axis_->series_.size();
      if (!more) series_ = 0, index_ = 0;
      run_ = axis_->series_[series_].first;
      return more;
    }

   private:
    const run_axis* axis_ = nullptr;
    std::size_t series_ = 0;
    std::int64_t index_ = 0;
    owned_run run_;
  };

 private:
  struct series {
    std::int64_t index = 0, count = 1;  // `index`: position of its first run among all runs
    owned_run first, step;
    constexpr owned_run run(std::int64_t at) const {
      const std::int64_t i = at - index;
      return {first.begin + i * step.begin, first.size, first.local + i * step.local, first.owner + i * step.owner};
    }
  };

  // Returns the last series for which `of(series)` is at most `value`.
  template <class Number>
  constexpr std::size_t place_of(std::int64_t value, const Number& of) const {
    std::size_t low = 0, high = series_.size();
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (of(series_[middle]) <= value ? low : high) = middle;
    }
    return low;
  }
  template <class Number>
  constexpr const series& series_of(std::int64_t value, const Number& of) const {
    return series_[place_of(value, of)];
  }

  std::vector<series> series_;
};

/// Fragments of a distribution without terms: one for every combination of a replica and a run from each dimension. The
/// sum of their `owner` numbers is the fragment's owner; its slot is 0. Ordered by box and then by owner, the fragments
/// are row-major.
struct fragment_product {
  std::vector<run_axis> dims;
  run_axis replicas;  // `begin` and `owner` are the number that the replica adds to the owner
  /// Number of fragments, if it fits in 64 bits.
  constexpr std::optional<std::int64_t> count() const {
    std::optional<std::int64_t> product = replicas.size();
    for (const run_axis& axis : dims)
      if (product) product = checked_multiply(*product, axis.size());
    return product;
  }
};

constexpr void run_axis::append(const owned_run& first, std::int64_t count, const owned_run& step) {
  if (!series_.empty()) {
    series& last = series_.back();
    const owned_run end = last.run(last.index + last.count - 1);
    const owned_run onward{first.begin - end.begin, 0, first.local - end.local, first.owner - end.owner};
    const bool goes_on =
        first.size == last.first.size && (last.count == 1 || onward == last.step) && (count == 1 || onward == step);
    if (goes_on) {
      last.step = onward;
      last.count += count;
      return;
    }
  }
  series_.push_back({size(), count, first, count == 1 ? owned_run{} : step});
}

}  // namespace shardmesh
