// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;
import :schedule;

namespace shardmesh {
namespace {

// A number in [0, 1) for each box. It spreads boxes of few units over the rounds, instead of starting all in the first.
long double phase_of(const box& where) {
  std::uint64_t mixed = 0x9e3779b97f4a7c15;
  for (const extents* numbers : {&where.offsets, &where.sizes})
    for (const std::int64_t number : *numbers) {
      mixed = (mixed ^ static_cast<std::uint64_t>(number)) * 0xbf58476d1ce4e5b9;
      mixed ^= mixed >> 31;
    }
  return static_cast<long double>(mixed >> 11) / static_cast<long double>(std::uint64_t{1} << 53);
}

}  // namespace

// The units of a box, in row-major order. A unit is one index of the first dimensions, with all elements of the
// remaining ones.
struct schedule::cut {
  std::size_t dims = 0;  // number of first dimensions
  std::int64_t units = 1;
  std::int64_t multiple = 1;  // parts begin at multiples of this many units, for sub-byte types
  long double phase = 0;
};

round_range schedule::rounds_of(std::size_t transfer) const {
  const plan_clock::time& t = clock_->transfers[transfer];
  if (rounds_ == 1 || clock_->length <= 0) return {0, 1};
  const auto count = static_cast<long double>(rounds_);
  // The number of rounds is a power of two, so the division rounds the same for every number of rounds.
  const auto first = static_cast<std::int64_t>(std::floor(t.begin / clock_->length * count));
  const auto last = static_cast<std::int64_t>(std::ceil((t.begin + t.length) / clock_->length * count));
  round_range range{std::clamp<std::int64_t>(first, 0, rounds_ - 1), std::clamp<std::int64_t>(last, 1, rounds_)};
  range.last = std::max(range.last, range.first + 1);
  return range;
}

schedule::cut schedule::cut_of(std::size_t transfer, const box& where) const {
  const std::int64_t width = clock_->transfers[transfer].cut_bits;
  const std::int64_t grain = std::max<std::int64_t>(clock_->grain_bytes * 8 / width, 1);
  cut c;
  std::int64_t inner = 1;
  c.dims = where.rank();
  while (c.dims > 0 && where.sizes[c.dims - 1] <= grain / inner) inner *= where.sizes[--c.dims];
  if (width % 8 != 0 && c.dims > 0) {
    const std::int64_t whole_bytes = 8 / std::gcd(width, std::int64_t{8});
    if (where.sizes[where.rank() - 1] % whole_bytes != 0)
      c.dims = 0;
    else if (c.dims == where.rank())
      c.multiple = whole_bytes;
  }
  for (std::size_t d = 0; d < c.dims; ++d) c.units *= where.sizes[d];
  c.phase = phase_of(where);
  return c;
}

// The first unit that moves in this round or later.
std::int64_t schedule::position(std::size_t transfer, const cut& c, std::int64_t round) const {
  const round_range range = rounds_of(transfer);
  if (round <= range.first) return 0;
  if (round >= range.last) return c.units;
  const plan_clock::time& t = clock_->transfers[transfer];
  const long double hand =
      clock_->length * (static_cast<long double>(round) / static_cast<long double>(rounds_)) - t.begin;
  const auto place =
      static_cast<std::int64_t>(std::floor(static_cast<long double>(c.units) * (hand / t.length) + c.phase));
  return std::clamp<std::int64_t>(place, 0, c.units) / c.multiple * c.multiple;
}

void schedule::each_part(std::size_t transfer, const box& where,
                         function_ref<void(std::int64_t round, const box&)> visit) const {
  const round_range all = rounds_of(transfer);
  const cut c = cut_of(transfer, where);
  std::int64_t at = 0;
  for (std::int64_t round = all.first; at < c.units; ++round) {
    // Finds the round in which unit `at` moves: the next one, or by bisection.
    std::int64_t last = all.last - 1;
    while (round < last && position(transfer, c, round + 1) <= at) {
      const std::int64_t middle = round + (last - round) / 2;
      if (position(transfer, c, middle + 1) <= at)
        round = middle + 1;
      else
        last = middle;
    }
    parts(transfer, where, round, [&](const box& part) { visit(round, part); });
    at = position(transfer, c, round + 1);
  }
}

void schedule::parts(std::size_t transfer, const box& where, std::int64_t round,
                     function_ref<void(const box&)> visit) const {
  const cut c = cut_of(transfer, where);
  std::int64_t at = position(transfer, c, round);
  const std::int64_t end = position(transfer, c, round + 1);
  if (at == end) return;
  if (c.dims == 0) return visit(where);
  while (at < end) {
    // The largest run that begins here: whole indices of the outermost possible dimension.
    std::int64_t stride = 1;  // units of one index of dimension d
    std::size_t d = c.dims - 1;
    for (; d > 0; --d) {
      const std::int64_t outer = stride * where.sizes[d];
      if (at % outer != 0 || end - at < outer) break;
      stride = outer;
    }
    box part = where;
    std::int64_t rest = at;
    for (std::size_t i = c.dims; i-- > 0;) {
      const std::int64_t index = rest % where.sizes[i];
      rest /= where.sizes[i];
      if (i > d) continue;
      part.offsets[i] += index;
      part.sizes[i] = i == d ? std::min((end - at) / stride, where.sizes[i] - index) : 1;
    }
    visit(part);
    at += part.sizes[d] * stride;
  }
}

std::int64_t peak_of(const rank_plan& plan, const schedule& rounds, bool messages) {
  struct use {
    std::int64_t gather = 0, deliver = 0, staging = 0;
  };
  std::vector<use> uses(static_cast<std::size_t>(rounds.rounds()));
  const plan_clock& clock = *plan.clock();
  for (std::size_t t = 0; t < plan.transfers(); ++t) {
    const plan_clock::time& types = clock.transfers[t];
    const step_table& steps = plan.steps(t);
    steps.for_each([&](std::size_t i, const step_head& s, std::int64_t) {
      if (s.phase > step_phase::deliver) return;
      const bool to_staging = s.to_side == buffer_side::staging;
      const bool moves =
          messages && s.phase != step_phase::average &&
          transfer_class::travels(s.kind, s.from_side, s.to_side, s.from_owner != s.to_owner, types.one_space);
      const bool stages = to_staging && s.kind == step_kind::copy && s.to_owner == plan.owner();
      if (!moves && !stages) return;
      const box where = steps[i].where;
      rounds.each_part(t, where, [&](std::int64_t round, const box& part) {
        use& one = uses[static_cast<std::size_t>(round)];
        const std::int64_t volume = part.volume();
        if (stages) one.staging += staging_size(volume, types.sum_bits);
        if (moves)
          (s.phase == step_phase::gather ? one.gather : one.deliver) +=
              volume * (to_staging ? types.term_bits : types.wire_bits) / 8;
      });
    });
  }
  std::int64_t most = 0;
  for (const use& one : uses) most = std::max(most, one.staging + std::max(one.gather, one.deliver));
  return most;
}

round_choice choose_rounds(const rank_plan& plan, bool messages) {
  const std::int64_t budget = plan.budget_bytes();
  round_choice choice{1, plan.largest_bytes(messages)};
  if (choice.needed_bytes <= budget) return choice;  // without a look at the steps
  for (std::int64_t rounds = 1; rounds <= most_rounds; rounds *= 2) {
    choice = {rounds, peak_of(plan, schedule(plan.clock(), rounds), messages)};
    if (choice.needed_bytes <= budget) return choice;
    // The need shrinks at most in proportion to the rounds. Skips numbers of rounds that cannot suffice.
    while (rounds < most_rounds / 2 && choice.needed_bytes / 4 > budget) rounds *= 2, choice.needed_bytes /= 2;
  }
  choice.rounds.reset();
  choice.needed_bytes = peak_of(plan, schedule(plan.clock(), most_rounds), messages);
  return choice;
}

std::int64_t rank_plan::peak_bytes() const {
  if (!clock_) return 0;
  const round_choice choice = choose_rounds(*this, true);
  return choice.rounds == 1 ? peak_of(*this, schedule(clock_, 1), true) : choice.needed_bytes;
}

}  // namespace shardmesh
