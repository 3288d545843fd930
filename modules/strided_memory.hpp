// SPDX-License-Identifier: Apache-2.0
// The bytes that a strided view of memory reaches, and whether two views share one. Shared by all rooms; only .cpp
// files include it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace shardmesh::detail {

/// The addresses [begin, end).
struct byte_range {
  std::uintptr_t begin = 0, end = 0;
};

/// A stride in bytes, and the maximum number of times it is added.
struct byte_step {
  std::int64_t bytes = 0, most = 0;
};

/// The bytes of a view, as runs of `run_bytes`. The first run begins at `lowest`; each other run begins at `lowest`
/// plus a sum of `steps`.
struct strided_memory {
  std::uintptr_t lowest = 0;
  std::int64_t run_bytes = 0;    // 0: the view has no elements
  std::vector<byte_step> steps;  // in ascending order

  byte_range hull() const {
    std::int64_t reach = run_bytes;
    for (const byte_step& step : steps) reach += step.bytes * step.most;
    return {lowest, lowest + static_cast<std::uintptr_t>(reach)};
  }
};

/// Returns the bytes of `view`, which is anything with data, sizes, and strides (in elements, possibly negative).
/// `item_bits` is the size of one element. A row of sub-byte elements that begins inside a byte counts from the start
/// of that byte. A view that reaches beyond the address space has no memory, so it shares none.
template <class View>
strided_memory memory_of(const View& view, std::int64_t item_bits) {
  strided_memory made;
  std::int64_t first = 0;  // the lowest element
  std::int64_t reach = 0;  // from the lowest to the highest element
  std::vector<byte_step> dims;
  dims.reserve(view.sizes.rank());
  for (std::size_t d = 0; d < view.sizes.rank(); ++d) {
    if (view.sizes[d] == 0) return made;
    const std::int64_t stride = view.strides[d], most = view.sizes[d] - 1;
    if (most == 0 || stride == 0) continue;
    constexpr std::int64_t furthest = INT64_MAX / 1024;  // in elements of up to 128 bits; two such reaches can be added
    std::int64_t far = 0;
    if (__builtin_mul_overflow(most, stride, &far) || far <= -furthest || far >= furthest) return made;
    reach += far < 0 ? -far : far;
    if (reach >= furthest) return made;
    if (far < 0) first += far;
    dims.push_back({stride < 0 ? -stride : stride, most});
  }
  std::ranges::sort(dims, {}, &byte_step::bytes);
  // Merge dimensions that continue each other into the run.
  std::int64_t run = 1;
  std::size_t inner = 0;
  while (inner < dims.size() && dims[inner].bytes == run) run *= dims[inner++].most + 1;
  made.lowest = reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(first * item_bits / 8);
  made.run_bytes = (run * item_bits + 7) / 8;
  for (; inner < dims.size(); ++inner) made.steps.push_back({dims[inner].bytes * item_bits / 8, dims[inner].most});
  return made;
}

/// Searches for a sum: multiples of the steps that add up to a number of bytes. The search gives up after `tries`
/// attempts.
class step_sum {
 public:
  explicit step_sum(std::vector<byte_step> steps, std::int64_t tries) : left_(tries) {
    std::ranges::sort(steps, std::ranges::greater{}, &byte_step::bytes);
    for (const byte_step& step : steps) {
      if (step.bytes == 0) continue;  // sub-byte elements that share a byte
      if (!steps_.empty() && steps_.back().bytes == step.bytes)
        steps_.back().most += step.most;
      else
        steps_.push_back(step);
    }
    rest_.resize(steps_.size() + 1);
    for (std::size_t i = steps_.size(); i-- > 0;)
      rest_[i] = {std::gcd(rest_[i + 1].divisor, steps_[i].bytes),
                  rest_[i + 1].reach + steps_[i].bytes * steps_[i].most};
  }

  /// Returns whether the steps can add up to `wanted`; nothing when the search gave up.
  std::optional<bool> can_be(std::int64_t wanted) {
    const bool found = search(0, wanted);
    if (left_ < 0) return std::nullopt;
    return found;
  }

 private:
  // The greatest common divisor and the largest sum of the steps from one index on.
  struct remainder {
    std::int64_t divisor = 0, reach = 0;
  };

  bool search(std::size_t from, std::int64_t wanted) {
    if (wanted == 0) return true;
    if (wanted < 0 || wanted > rest_[from].reach || wanted % rest_[from].divisor != 0) return false;
    const byte_step& step = steps_[from];
    const std::int64_t missing = wanted - rest_[from + 1].reach;
    const std::int64_t least = missing <= 0 ? 0 : (missing + step.bytes - 1) / step.bytes;
    for (std::int64_t times = std::min(step.most, wanted / step.bytes); times >= least; --times) {
      if (--left_ < 0) return false;
      if (search(from + 1, wanted - times * step.bytes)) return true;
      if (left_ < 0) return false;
    }
    return false;
  }

  std::vector<byte_step> steps_;  // in descending order
  std::vector<remainder> rest_;
  std::int64_t left_;
};

/// Lists the runs in ascending order; returns nothing when there are too many.
inline std::optional<std::vector<byte_range>> runs_of(const strided_memory& memory) {
  constexpr std::int64_t most_runs = std::int64_t{1} << 21;
  std::int64_t count = 1;
  for (const byte_step& step : memory.steps) {
    if (step.most >= most_runs / count) return std::nullopt;
    count *= step.most + 1;
  }
  std::vector<byte_range> runs;
  runs.reserve(static_cast<std::size_t>(count));
  std::vector<std::int64_t> index(memory.steps.size(), 0);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * memory.steps[d].bytes;
    const std::uintptr_t begin = memory.lowest + static_cast<std::uintptr_t>(at);
    runs.push_back({begin, begin + static_cast<std::uintptr_t>(memory.run_bytes)});
    for (std::size_t d = 0; d < index.size() && ++index[d] > memory.steps[d].most; ++d) index[d] = 0;
  }
  std::ranges::sort(runs, {}, &byte_range::begin);
  return runs;
}

/// Returns whether some byte belongs to both views. The answer is exact. Returns nothing when neither a search of
/// 100,000 tries nor lists of two million runs decide; views of one tensor stay far below both limits.
inline std::optional<bool> share_a_byte(const strided_memory& a, const strided_memory& b) {
  if (a.run_bytes == 0 || b.run_bytes == 0) return false;
  const byte_range x = a.hull(), y = b.hull();
  if (x.end <= y.begin || y.end <= x.begin) return false;
  // The views share a byte when a.lowest + (steps of a) == b.lowest + (steps of b), for some numbers of steps. Counting
  // the steps of `b` down from its end turns this into one sum of non-negative summands.
  std::vector<byte_step> steps = a.steps;
  steps.insert(steps.end(), b.steps.begin(), b.steps.end());
  for (const std::int64_t run : {a.run_bytes, b.run_bytes})
    if (run > 1) steps.push_back({1, run - 1});
  constexpr std::int64_t most_tries = 100'000;
  const auto wanted = static_cast<std::int64_t>(y.end - 1 - x.begin);
  if (const auto found = step_sum(std::move(steps), most_tries).can_be(wanted)) return found;
  const auto runs_a = runs_of(a), runs_b = runs_of(b);
  if (!runs_a || !runs_b) return std::nullopt;
  for (std::size_t i = 0, j = 0; i < runs_a->size() && j < runs_b->size();) {
    const byte_range& p = (*runs_a)[i];
    const byte_range& q = (*runs_b)[j];
    if (p.begin < q.end && q.begin < p.end) return true;
    p.end <= q.end ? ++i : ++j;
  }
  return false;
}

}  // namespace shardmesh::detail
