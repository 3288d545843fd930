// SPDX-License-Identifier: Apache-2.0
// step: one piece of work of a transfer, and the flat tables that hold them. Not here: who decides (plan).
export module shardmesh.transfer:step;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

enum class step_kind : std::uint8_t {
  copy,        // from -> to, with a cast where their types differ
  accumulate,  // to = to (reduction) from
  scale,       // to = to * factor
  divide,      // to = to / factor: an average of a sum
  fill,        // to = the identity of the destination's reduction
};

/// Which of an owner's buffers a step touches: a slot of the source or the destination distribution, or a row-major
/// buffer of the planner's own, of the type that reductions accumulate in, as large as the step's box.
enum class buffer_side : std::uint8_t { source, destination, staging };

/// When a step runs. Phases follow one another, and every message of one is complete before the next one uses what it
/// brought: so a table is executed from its first step to its last, and no step has to name those that it waits for.
enum class step_phase : std::uint8_t {
  gather,   // copies of values, and terms on their way to who adds them up
  average,  // division of sums, where they are
  deliver,  // results to their receivers
  repeat,   // copies between slots of one owner
  finish,   // scaling and filling of a partial destination
};

/// One end of a step. `offsets` are the first element's indices in the slot's own index space (zeros in staging).
struct step_end {
  owner_id owner = 0;
  buffer_side side = buffer_side::source;
  std::int32_t slot = 0;
  extents offsets;
  friend bool operator==(const step_end&, const step_end&) = default;
};

/// One piece of work. Local when both owners are the same (in one owner space); otherwise the piece travels.
struct step {
  step_kind kind = step_kind::copy;
  step_phase phase = step_phase::gather;
  reduce_op reduction = reduce_op::none;  // of accumulate and fill
  std::int32_t term = 0;                  // which term of the source it carries
  std::int64_t factor = 1;                // of scale and divide
  box where;                              // of the global tensor; its sizes are the piece's
  step_end from, to;
  friend bool operator==(const step&, const step&) = default;
};

/// Steps in flat arrays, in execution order: about 50 bytes and 4 numbers per dimension each.
class step_table {
 public:
  constexpr explicit step_table(std::size_t rank = 0) : rank_(rank) {}

  /// A step without its box and offsets.
  struct head {
    std::int64_t factor;
    owner_id from_owner, to_owner;
    std::int32_t from_slot, to_slot, term;
    step_kind kind;
    step_phase phase;
    reduce_op reduction;
    buffer_side from_side, to_side;
  };

  constexpr std::size_t size() const { return steps_.size(); }
  constexpr step operator[](std::size_t i) const;
  constexpr const head& head_of(std::size_t i) const { return steps_[i]; }
  /// Elements of step i.
  constexpr std::int64_t volume(std::size_t i) const;

  constexpr void reserve(std::size_t steps);
  constexpr void push_back(const step& s);
  /// Puts the steps into execution order: by phase, box, term, owners. Cost: O(n log n).
  constexpr void sort();

 private:
  constexpr std::span<const std::int64_t> numbers(std::size_t i) const {
    return std::span(numbers_).subspan(i * 4 * rank_, 4 * rank_);
  }
  constexpr bool before(std::uint32_t a, std::uint32_t b) const;

  std::size_t rank_;
  std::vector<head> steps_;
  std::vector<std::int64_t> numbers_;  // per step: offsets, sizes, from offsets, to offsets
};

constexpr step step_table::operator[](std::size_t i) const {
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
  std::int64_t product = 1;
  for (const std::int64_t size : numbers(i).subspan(rank_, rank_)) product *= size;
  return product;
}

constexpr void step_table::push_back(const step& s) {
  steps_.push_back({s.factor, s.from.owner, s.to.owner, s.from.slot, s.to.slot, s.term, s.kind, s.phase, s.reduction,
                    s.from.side, s.to.side});
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
  std::vector<std::uint32_t> order(steps_.size(), 0U);  // a value: libstdc++ 12 is not constexpr without
  std::iota(order.begin(), order.end(), 0U);
  const auto less = [this](std::uint32_t a, std::uint32_t b) { return before(a, b); };
  // What is received, then what is sent: often two sorted runs.
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
