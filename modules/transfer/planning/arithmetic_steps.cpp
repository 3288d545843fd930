// SPDX-License-Identifier: Apache-2.0
// Computes the steps of an owner between two grids, without listing them. Receives are the cells that each of its
// destination fragments shares with the source's grid. Sends are the cells that each of its source fragments shares
// with the destination's. The rest is their order: a step table is sorted by box, then by owners, and so are the cells
// of each grid.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;
import :step_grid;

namespace shardmesh {
namespace {

// Below this number, a list is faster to look up.
constexpr std::int64_t fewest_cells = 256;
// An owner with more fragments than this is not treated as a grid.
constexpr std::size_t most_fragments = 64;

std::vector<fragment> fragments_of(const distribution& d, owner_id owner) {
  std::vector<fragment> found;
  d.fragments_of(owner, [&](const fragment& f) {
    if (!f.where.is_empty()) found.push_back(f);
    return found.size() <= most_fragments;
  });
  return found;
}

std::int64_t volume_of(std::span<const fragment> fragments) {
  std::int64_t sum = 0;
  for (const fragment& f : fragments) sum += f.where.volume();
  return sum;
}

// The cells of one grid, to be merged in order with those of other grids.
class cell_source {
 public:
  cell_source(const step_grid& grid, std::vector<std::int64_t> left_out)
      : grid_(&grid), left_out_(std::move(left_out)) {
    std::sort(left_out_.begin(), left_out_.end());
  }

  std::int64_t next() const { return next_; }
  bool is_over() const { return next_ == grid_->cells(); }

  // Whether cell `a` of this grid comes before cell `b` of `other`.
  bool is_before(std::int64_t a, const cell_source& other, std::int64_t b) const {
    const step_grid::cursor mine(*grid_, a), theirs(*other.grid_, b);
    const box x = mine.where(), y = theirs.where();
    const step_head i = mine.head(), j = theirs.head();
    return std::tie(x, i.from_owner, i.to_owner) < std::tie(y, j.from_owner, j.to_owner);
  }
  // The first cell after the next one that does not come before `other`'s next cell.
  std::int64_t end_before(const cell_source& other) const {
    std::int64_t low = next_, step = 1;  // `low` comes before `other`'s next cell
    while (low + step < grid_->cells() && is_before(low + step, other, other.next_)) low += step, step *= 2;
    std::int64_t high = std::min(low + step, grid_->cells());
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (is_before(middle, other, other.next_) ? low : high) = middle;
    }
    return high;
  }
  // Advances to `end`; `take(first, end)` receives the ranges that are not left out.
  template <class Take>
  void advance(std::int64_t end, const Take& take) {
    while (next_ < end) {
      const auto hole = std::lower_bound(left_out_.begin(), left_out_.end(), next_);
      const std::int64_t stop = hole == left_out_.end() ? end : std::min(*hole, end);
      if (stop > next_) take(next_, stop);
      next_ = stop == end ? end : stop + 1;
    }
  }

 private:
  const step_grid* grid_;
  std::vector<std::int64_t> left_out_;
  std::int64_t next_ = 0;
};

// Merges the cells of all grids into step order.
step_table in_order(std::size_t rank, std::vector<step_grid> grids, std::vector<cell_source> sources) {
  std::vector<step_table::stretch> stretches;
  std::size_t steps = 0;
  while (true) {
    std::size_t first = sources.size(), second = sources.size();  // the grids with the first and second next cell
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].is_over()) continue;
      const auto leads = [&](std::size_t other) {
        return other == sources.size() ||
               sources[i].is_before(sources[i].next(), sources[other], sources[other].next());
      };
      if (leads(first))
        second = std::exchange(first, i);
      else if (leads(second))
        second = i;
    }
    if (first == sources.size()) break;
    const std::int64_t end =
        second == sources.size() ? grids[first].cells() : sources[first].end_before(sources[second]);
    sources[first].advance(end, [&](std::int64_t from, std::int64_t to) {
      stretches.push_back({steps, first, from});
      steps += static_cast<std::size_t>(to - from);
    });
  }
  return step_table(rank, std::move(grids), std::move(stretches), steps);
}

}  // namespace

std::optional<owner_steps> arithmetic_steps(const transfer_class& c, owner_id owner, owner_space space) {
  if (c.mode != transfer_mode::values || !c.one_space() || space != c.from.space() ||
      c.to.reduction() != reduce_op::none)
    return std::nullopt;
  const std::vector<fragment> has = fragments_of(c.from, owner), wants = fragments_of(c.to, owner);
  if (has.size() > most_fragments || wants.size() > most_fragments) return std::nullopt;

  std::vector<step_grid> grids;
  std::int64_t cells = 0;
  const auto add = [&](const fragment& own, bool sends) {
    auto held = c.from.product_within(own.where), wanted = c.to.product_within(own.where);
    if (!held || !wanted) return false;
    if (held->replicas.size() != 1) return false;  // several holders: the rules choose among them
    fragment_product& others = sends ? *wanted : *held;
    const auto count = others.count();
    if (!count || *count > std::numeric_limits<std::uint32_t>::max() - cells) return false;
    cells += *count;
    grids.push_back({own, std::move(others), sends});
    return true;
  };
  for (const fragment& f : wants)
    if (!add(f, false)) return std::nullopt;
  for (const fragment& f : has)
    if (!add(f, true)) return std::nullopt;
  if (cells < fewest_cells) return std::nullopt;

  // A piece that the owner both holds and wants is copied as a receive.
  std::int64_t kept = 0;
  std::vector<cell_source> sources;
  for (const step_grid& grid : grids) {
    std::vector<std::int64_t> left_out;
    for (const fragment& f : wants) {
      const auto cell = grid.sends ? intersect(f.where, grid.own.where) : std::nullopt;
      if (!cell) continue;
      left_out.push_back(grid.cell_of(cell->offsets, owner));
      kept += cell->volume();
    }
    sources.emplace_back(grid, std::move(left_out));
  }
  owner_steps made;
  made.owner = owner;
  const auto bytes = [&](std::int64_t volume) { return rules::bytes_of(volume, c.wire_bits()); };
  const std::int64_t held = volume_of(has), wanted = volume_of(wants);
  made.held_bytes = rules::bytes_of(held, bits(c.from_type));
  made.wanted_bytes = rules::bytes_of(wanted, bits(c.to_type));
  made.local_bytes = bytes(kept);
  made.received_bytes = bytes(wanted - kept);
  for (const step_grid& grid : grids)
    if (grid.sends) made.sent_bytes += bytes(grid.own.where.volume() * grid.others.replicas.size());
  made.sent_bytes -= bytes(kept);
  made.steps = in_order(c.from.global_shape().rank(), std::move(grids), std::move(sources));
  return made;
}

}  // namespace shardmesh
