// SPDX-License-Identifier: Apache-2.0
// The steps of one owner in one transfer. The code that makes them is in `expand` and `arithmetic_steps`.
export module shardmesh.transfer:step_table;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :step;
import :step_grid;

export namespace shardmesh {

/// Steps in execution order. Either they are listed in flat arrays, at about 50 bytes and 4 numbers per dimension each,
/// or they are computed. Copies between very many owners of grids are computed, each from a few numbers.
class step_table {
 public:
  constexpr explicit step_table(std::size_t rank = 0) : rank_(rank) {}

  using head = step_head;

  constexpr std::size_t size() const { return steps_.size() + cells_; }
  /// Step i. Cost: O(1), or O(log n) if the steps are computed.
  constexpr step operator[](std::size_t i) const;
  constexpr head head_of(std::size_t i) const;
  /// Number of elements of step i.
  constexpr std::int64_t volume(std::size_t i) const;
  /// Calls `visit(i, head, elements)` for every step, in order. Cost: O(n).
  template <std::invocable<std::size_t, const step_head&, std::int64_t> Visit>
  constexpr void for_each(Visit&& visit) const;
  /// Memory that the table takes.
  constexpr std::size_t memory_bytes() const;

  constexpr void reserve(std::size_t steps);
  constexpr void push_back(const step& s);
  /// Sorts the steps into execution order: by phase, box, term, and owners. Cost: O(n log n).
  constexpr void sort();

  /// Consecutive cells of a grid, which make up the steps from `first_step` on.
  struct stretch {
    std::size_t first_step = 0, grid = 0;
    std::int64_t first_cell = 0;
  };
  /// Internal to this module: a table of `cells` computed steps. Stretches ascend without gaps.
  constexpr step_table(std::size_t rank, std::vector<step_grid> grids, std::vector<stretch> stretches,
                       std::size_t cells)
      : rank_(rank), grids_(std::move(grids)), stretches_(std::move(stretches)), cells_(cells) {}
  constexpr bool is_computed() const { return cells_ > 0; }

 private:
  constexpr std::span<const std::int64_t> numbers(std::size_t i) const {
    return std::span(numbers_).subspan(i * 4 * rank_, 4 * rank_);
  }
  constexpr bool before(std::uint32_t a, std::uint32_t b) const;
  constexpr step_grid::cursor cell_of(std::size_t i) const;

  std::size_t rank_;
  std::vector<head> steps_;
  std::vector<std::int64_t> numbers_;  // per step: offsets, sizes, from offsets, to offsets
  std::vector<step_grid> grids_;       // instead of the two above
  std::vector<stretch> stretches_;
  std::size_t cells_ = 0;
};

constexpr step_grid::cursor step_table::cell_of(std::size_t i) const {
  const auto next =
      std::partition_point(stretches_.begin(), stretches_.end(), [&](const stretch& s) { return s.first_step <= i; });
  const stretch& s = *(next - 1);
  return {grids_[s.grid], s.first_cell + static_cast<std::int64_t>(i - s.first_step)};
}

constexpr step_head step_table::head_of(std::size_t i) const {
  return is_computed() ? cell_of(i).head() : steps_[i];
}

template <std::invocable<std::size_t, const step_head&, std::int64_t> Visit>
constexpr void step_table::for_each(Visit&& visit) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) visit(i, steps_[i], volume(i));
  for (std::size_t s = 0; s < stretches_.size(); ++s) {
    const std::size_t end = s + 1 < stretches_.size() ? stretches_[s + 1].first_step : cells_;
    step_grid::cursor cell(grids_[stretches_[s].grid], stretches_[s].first_cell);
    for (std::size_t i = stretches_[s].first_step; i < end; ++i, cell.next()) visit(i, cell.head(), cell.volume());
  }
}

constexpr std::size_t step_table::memory_bytes() const {
  std::size_t sum = steps_.size() * sizeof(head) + numbers_.size() * sizeof(std::int64_t);
  for (const step_grid& grid : grids_) sum += grid.memory_bytes();
  return sum + stretches_.size() * sizeof(stretch);
}

constexpr step step_table::operator[](std::size_t i) const {
  if (is_computed()) return cell_of(i).whole();
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

constexpr std::int64_t step_table::volume(std::size_t i) const {
  if (is_computed()) return cell_of(i).volume();
  std::int64_t product = 1;
  for (const std::int64_t size : numbers(i).subspan(rank_, rank_)) product *= size;
  return product;
}

constexpr void step_table::push_back(const step& s) {
  steps_.push_back(head(s));
  for (const extents* part : {&s.where.offsets, &s.where.sizes, &s.from.offsets, &s.to.offsets})
    numbers_.insert(numbers_.end(), part->begin(), part->end());
}

constexpr void step_table::reserve(std::size_t steps) {
  steps_.reserve(steps);
  numbers_.reserve(steps * 4 * rank_);
}

constexpr bool step_table::before(std::uint32_t a, std::uint32_t b) const {
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

constexpr void step_table::sort() {
  std::vector<std::uint32_t> order(steps_.size(), 0U);  // libstdc++ 12: constexpr only with a value
  std::iota(order.begin(), order.end(), 0U);
  const auto less = [this](std::uint32_t a, std::uint32_t b) { return before(a, b); };
  // Receives come before sends, so the steps are often two sorted runs.
  const auto second = std::is_sorted_until(order.begin(), order.end(), less);
  if (second == order.end()) return;
  if (std::is_sorted(second, order.end(), less)) {
    std::vector<std::uint32_t> merged(order.size(), 0U);
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
