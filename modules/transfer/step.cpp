// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {

step step_table::operator[](std::size_t i) const {
  const head& p = steps_[i];
  const auto part = [&](std::size_t which) { return extents(numbers(i).subspan(which * rank_, rank_)); };
  return {p.kind,
          p.phase,
          p.reduction,
          p.term,
          p.factor,
          {part(0), part(1)},
          {p.from_owner, p.from_side, p.from_slot, part(2)},
          {p.to_owner, p.to_side, p.to_slot, part(3)}};
}

std::int64_t step_table::volume(std::size_t i) const {
  std::int64_t product = 1;
  for (const std::int64_t size : numbers(i).subspan(rank_, rank_)) product *= size;
  return product;
}

void step_table::push_back(const step& s) {
  steps_.push_back({s.factor, s.from.owner, s.to.owner, s.from.slot, s.to.slot, s.term, s.kind, s.phase, s.reduction,
                    s.from.side, s.to.side});
  const std::size_t at = numbers_.size();
  numbers_.resize(at + 4 * rank_);
  std::int64_t* to = numbers_.data() + at;
  for (const extents* part : {&s.where.offsets, &s.where.sizes, &s.from.offsets, &s.to.offsets})
    to = std::copy(part->begin(), part->end(), to);
}

void step_table::reserve(std::size_t steps) {
  steps_.reserve(steps);
  numbers_.reserve(steps * 4 * rank_);
}

bool step_table::before(std::uint32_t a, std::uint32_t b) const {
  const head& x = steps_[a];
  const head& y = steps_[b];
  if (x.phase != y.phase) return x.phase < y.phase;
  const auto nx = numbers(a), ny = numbers(b);
  for (std::size_t d = 0; d < 2 * rank_; ++d)
    if (nx[d] != ny[d]) return nx[d] < ny[d];
  if (x.term != y.term) return x.term < y.term;
  if (x.from_owner != y.from_owner) return x.from_owner < y.from_owner;
  if (x.to_owner != y.to_owner) return x.to_owner < y.to_owner;
  return x.to_slot < y.to_slot;
}

void step_table::sort() {
  std::vector<std::uint32_t> order(steps_.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto less = [this](std::uint32_t a, std::uint32_t b) { return before(a, b); };
  // What is received, then what is sent: often two sorted runs.
  const auto second = std::is_sorted_until(order.begin(), order.end(), less);
  if (second == order.end()) return;
  if (std::is_sorted(second, order.end(), less)) {
    std::vector<std::uint32_t> merged(order.size());
    std::merge(order.begin(), second, second, order.end(), merged.begin(), less);
    order = std::move(merged);
  } else {
    std::sort(order.begin(), order.end(), less);
  }
  std::vector<head> steps;
  std::vector<std::int64_t> all;
  steps.reserve(steps_.size());
  all.reserve(numbers_.size());
  for (const std::uint32_t i : order) {
    steps.push_back(steps_[i]);
    const auto part = numbers(i);
    all.insert(all.end(), part.begin(), part.end());
  }
  steps_ = std::move(steps);
  numbers_ = std::move(all);
}

}  // namespace shardmesh
