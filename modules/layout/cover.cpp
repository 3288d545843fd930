// SPDX-License-Identifier: Apache-2.0
// Checks coverage in two steps. First the proof: the random measures of boxes that hold every cell once add up to the
// measure of the whole (cover_measure.hpp). If they do not, a search finds the defects (cover_search.hpp) and reports
// them.
module;
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "box_index.hpp"
#include "cover_degrees.hpp"
#include "cover_join.hpp"
#include "cover_measure.hpp"
#include "cover_search.hpp"
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

using numbers = std::span<const std::int64_t>;
using indices = std::vector<std::uint32_t>;

struct boxes {
  std::size_t rank;
  numbers offsets, sizes;
  std::span<const owner_id> owners;

  box_numbers at_index(std::size_t i) const { return {offsets.data() + i * rank, sizes.data() + i * rank}; }
  const std::int64_t* offsets_of(std::uint32_t i) const { return offsets.data() + i * rank; }
  const std::int64_t* sizes_of(std::uint32_t i) const { return sizes.data() + i * rank; }
  std::int64_t begin(std::uint32_t i, std::size_t d) const { return offsets[i * rank + d]; }
  std::int64_t size(std::uint32_t i, std::size_t d) const { return sizes[i * rank + d]; }
  std::int64_t end(std::uint32_t i, std::size_t d) const { return begin(i, d) + size(i, d); }
  box at(std::uint32_t i) const {
    return {extents(offsets.subspan(i * rank, rank)), extents(sizes.subspan(i * rank, rank))};
  }
  bool equal(std::uint32_t a, std::uint32_t b) const {
    return std::equal(offsets_of(a), offsets_of(a) + rank, offsets_of(b)) &&
           std::equal(sizes_of(a), sizes_of(a) + rank, sizes_of(b));
  }
};

bool is_empty(std::size_t rank, const std::int64_t* sizes) {
  return std::find(sizes, sizes + rank, 0) != sizes + rank;
}

bool is_within(const extents& shape, const std::int64_t* offsets, const std::int64_t* sizes) {
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] > shape[d] || sizes[d] > shape[d] - offsets[d]) return false;
  return true;
}

bool has_an_end(std::size_t rank, const std::int64_t* offsets, const std::int64_t* sizes) {
  for (std::size_t d = 0; d < rank; ++d)
    if (offsets[d] < 0 || sizes[d] < 0 || !checked_add(offsets[d], sizes[d])) return false;
  return true;
}

// Cuts a box to its part in the tensor; invalid boxes become empty.
void clip(const extents& shape, std::span<std::int64_t> offsets, std::span<std::int64_t> sizes) {
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const auto end = checked_add(offsets[d], sizes[d]);
    const std::int64_t from = std::clamp<std::int64_t>(offsets[d], 0, shape[d]);
    sizes[d] = sizes[d] <= 0 || !end ? 0 : std::clamp<std::int64_t>(*end, from, shape[d]) - from;
    offsets[d] = from;
  }
}

class report_writer {
 public:
  report_writer(std::size_t max_problems, owner_space space) : max_(max_problems), space_(space) {}
  std::size_t room() const { return max_ - std::min(max_, report.problems.size()); }
  void add(cover_problem problem) {
    ++report.total;
    problem.space = space_;
    if (room() > 0) report.problems.push_back(std::move(problem));
  }
  void count(std::int64_t more) { report.total += more; }
  // Drops all but the first `kept` problems. Precondition: every counted problem after them is also listed.
  void forget(std::size_t kept) {
    report.total -= static_cast<std::int64_t>(report.problems.size() - kept);
    report.problems.resize(kept);
  }
  cover_report report;

 private:
  std::size_t max_;
  owner_space space_;
};

// Returns the first of each set of equal boxes, ascending.
indices first_of_equals(const boxes& b, const indices& members) {
  std::size_t capacity = 16;
  while (capacity < members.size() * 2) capacity *= 2;
  indices table(capacity, 0);  // member + 1
  indices distinct;
  distinct.reserve(members.size());
  const std::size_t bytes = b.rank * sizeof(std::int64_t);
  for (const std::uint32_t m : members) {
    std::uint64_t hash = XXH3_64bits(b.offsets_of(m), bytes);
    hash = XXH3_64bits_withSeed(b.sizes_of(m), bytes, hash);
    std::size_t at = hash & (capacity - 1);
    while (table[at] != 0 && !b.equal(table[at] - 1, m)) at = (at + 1) & (capacity - 1);
    if (table[at] != 0) continue;
    table[at] = m + 1;
    distinct.push_back(m);
  }
  return distinct;
}

bool are_a_partition(const box& whole, const boxes& b, const indices& members) {
  covering::tally sum(b.rank);
  for (const std::uint32_t i : members) sum.add(b.offsets_of(i), b.sizes_of(i));
  return sum.equals(whole.offsets.data(), whole.sizes.data());
}

// A set of boxes in a region that is known not to hold every cell exactly once.
struct suspicion {
  const boxes& b;
  const box& whole;
  const indices& members;         // not empty, inside the region; ascending
  std::vector<std::size_t> cuts;  // dimensions that some member does not span; at least one

  suspicion(const boxes& all, const box& region, const indices& which) : b(all), whole(region), members(which) {
    for (std::size_t d = 0; d < b.rank; ++d)
      if (std::any_of(members.begin(), members.end(), [&](std::uint32_t i) {
            return b.begin(i, d) != whole.offsets[d] || b.size(i, d) != whole.sizes[d];
          }))
        cuts.push_back(d);
    if (cuts.empty()) cuts.push_back(0);
  }

  covering::defect_search search(bool wants_gaps, covering::which_mark which) const {
    const auto along = [which](std::size_t d, std::int64_t begin, std::int64_t end) {
      const covering::marks& marks = covering::marks::of_this_process();
      return covering::extent_1d{begin, end, marks.at(d, begin).*which, marks.at(d, end).*which};
    };
    std::vector<covering::extent_1d> all, region;
    all.reserve(members.size() * cuts.size());
    for (const std::uint32_t i : members)
      for (const std::size_t d : cuts) all.push_back(along(d, b.begin(i, d), b.end(i, d)));
    for (const std::size_t d : cuts) region.push_back(along(d, whole.offsets[d], whole.end(d)));
    covering::defect_search made(cuts.size(), std::move(all), std::move(region), wants_gaps);
    made.run(5'000'000 + (wants_gaps ? 100 : 30) * static_cast<std::int64_t>(members.size()));
    return made;
  }

  // Counts for each of `some` the others with which it shares cells.
  covering::degree_counter degrees(const indices& some) const {
    std::vector<covering::interval> all;
    all.reserve(some.size() * cuts.size());
    for (const std::uint32_t i : some)
      for (const std::size_t d : cuts) all.push_back({b.begin(i, d), b.end(i, d)});
    covering::degree_counter made(cuts.size(), std::move(all));
    made.run(50'000'000 + 100 * static_cast<std::int64_t>(some.size()));
    return made;
  }
};

// Reports pairs of `some` boxes that share cells, in input order, while the report has room, and counts the rest. Stops
// when `work` is spent. Returns whether it has found all pairs.
bool name_overlaps(const boxes& b, const indices& some, std::int64_t work, report_writer& out) {
  const box_index index(b.rank, b.offsets, b.sizes, some);
  std::int64_t spent = 0;
  indices others;
  std::vector<std::int64_t> end(b.rank);
  for (const std::uint32_t i : some) {
    if (spent > work) return false;
    others.clear();
    for (std::size_t d = 0; d < b.rank; ++d) end[d] = b.end(i, d);
    index.query(b.offsets_of(i), end.data(), spent, [&](std::uint32_t other) {
      if (other > i) others.push_back(other);
      return true;
    });
    if (out.room() > 0) std::sort(others.begin(), others.end());
    const std::size_t named = std::min(out.room(), others.size());
    for (const std::uint32_t other : std::span(others).first(named))
      out.add({cover_kind::overlap, *intersect(b.at(i), b.at(other)), b.owners[i], b.owners[other], i, other, {}});
    out.count(static_cast<std::int64_t>(others.size() - named));
  }
  return true;
}

void report_overlaps(const suspicion& s, const covering::defect_search& search, report_writer& out) {
  indices some;  // contains all boxes that share cells with others
  if (search.is_complete())
    for (const std::uint32_t i : search.suspects()) some.push_back(s.members[i]);
  else
    some = s.members;
  if (some.empty()) return;
  const std::int64_t before = out.report.total;
  const std::size_t named_before = out.report.problems.size();
  const std::int64_t work = 5'000'000 + 40 * static_cast<std::int64_t>(some.size());
  if (name_overlaps(s.b, some, work, out)) return;
  // There are very many pairs, or boxes that an index cannot separate. Counting pairs is then faster than visiting
  // them.
  const covering::degree_counter counter = s.degrees(some);
  if (out.room() > 0 &&
      counter.pairs() > out.report.total - before) {  // too few reported: restart with the boxes that share cells
    indices sharing;
    for (std::size_t i = 0; i < some.size(); ++i)
      if (counter.degrees()[i] != 0) sharing.push_back(some[i]);
    out.forget(named_before);
    name_overlaps(s.b, sharing, work, out);
  }
  out.report.total = before + std::max(out.report.total - before, counter.pairs());
  if (!counter.is_complete()) out.report.total_is_exact = false;
}

void report_gaps(const suspicion& s, covering::defect_search& search, report_writer& out) {
  std::vector<std::int64_t>& gaps = search.gaps();
  const std::size_t dims = s.cuts.size();
  covering::join_touching(gaps, dims);
  indices order(gaps.size() / (2 * dims));
  std::iota(order.begin(), order.end(), 0U);
  const auto named = static_cast<std::ptrdiff_t>(std::min(out.room(), order.size()));
  std::partial_sort(order.begin(), order.begin() + named, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    for (std::size_t c = 0; c < dims; ++c) {
      const std::int64_t x = gaps[(a * dims + c) * 2], y = gaps[(b * dims + c) * 2];
      if (x != y) return x < y;
    }
    return false;
  });
  for (const std::uint32_t i : std::span(order).first(static_cast<std::size_t>(named))) {
    box gap = s.whole;
    for (std::size_t c = 0; c < dims; ++c) {
      const std::int64_t* along = &gaps[(i * dims + c) * 2];
      gap.offsets[s.cuts[c]] = along[0];
      gap.sizes[s.cuts[c]] = along[1] - along[0];
    }
    out.add({cover_kind::gap, gap, 0, 0, 0, 0, {}});
  }
  out.count(static_cast<std::int64_t>(order.size()) - named);
  if (!search.is_complete()) out.report.total_is_exact = false;
}

}  // namespace

std::string to_string(const cover_problem& p) {
  const char* one = p.space == owner_space::ranks ? "rank" : "item";
  switch (p.kind) {
    case cover_kind::overlap:
      if (p.first == p.second) return fmt::format("two boxes of {} {} overlap in {}", one, p.first, to_string(p.where));
      return fmt::format("{}s {} and {} overlap in {}", one, p.first, p.second, to_string(p.where));
    case cover_kind::gap:
      return fmt::format("{} is held by no {}", to_string(p.where), one);
    case cover_kind::out_of_bounds:
      if (!is_well_formed(p.where))
        return fmt::format("{} {} has a box with offsets {} and sizes {}", one, p.first, to_string(p.where.offsets),
                           to_string(p.where.sizes));
      return fmt::format("{} {} extends beyond the tensor with {}", one, p.first, to_string(p.where));
  }
  return {};
}

cover_report check_cover(const distribution& d, std::size_t max_problems) {
  if (d.is_complete()) return {};
  const boxes_view flat = d.description().flat();
  return check_boxes(d.global_shape(), flat.offsets, flat.sizes, flat.owners, max_problems, d.space());
}

bool is_partition(const extents& shape, std::size_t count, function_ref<box_numbers(std::size_t)> box_at) {
  covering::tally sum(shape.rank());
  for (std::size_t i = 0; i < count; ++i) {
    const box_numbers b = box_at(i);
    if (!is_within(shape, b.offsets, b.sizes)) return false;
    if (!is_empty(shape.rank(), b.sizes)) sum.add(b.offsets, b.sizes);
  }
  const box whole = box::whole(shape);
  return whole.is_empty() || sum.equals(whole.offsets.data(), whole.sizes.data());
}

bool tiles_a_box(std::size_t rank, std::size_t count, function_ref<box_numbers(std::size_t)> box_at) {
  covering::tally sum(rank);
  extents low = extents::filled(rank, std::numeric_limits<std::int64_t>::max()), high = extents::filled(rank, 0);
  bool is_any = false;
  for (std::size_t i = 0; i < count; ++i) {
    const box_numbers b = box_at(i);
    if (!has_an_end(rank, b.offsets, b.sizes)) return false;
    if (is_empty(rank, b.sizes)) continue;
    is_any = true;
    sum.add(b.offsets, b.sizes);
    for (std::size_t d = 0; d < rank; ++d) {
      low[d] = std::min(low[d], b.offsets[d]);
      high[d] = std::max(high[d], b.offsets[d] + b.sizes[d]);
    }
  }
  for (std::size_t d = 0; d < rank; ++d) high[d] -= is_any ? low[d] : 0;
  return !is_any || sum.equals(low.data(), high.data());
}

cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems, owner_space space, equal_boxes equal) {
  const boxes given{shape.rank(), offsets, sizes, owners};
  if (is_partition(shape, owners.size(), [&](std::size_t i) { return given.at_index(i); })) return {};
  report_writer out(max_problems, space);
  std::vector<std::int64_t> clipped_offsets, clipped_sizes;  // copies, when a box extends beyond the tensor
  for (std::uint32_t i = 0; i < owners.size(); ++i) {
    if (is_within(shape, given.offsets_of(i), given.sizes_of(i))) continue;
    out.add({cover_kind::out_of_bounds, given.at(i), owners[i], owners[i], i, i, {}});
    if (clipped_sizes.empty())
      clipped_offsets.assign(offsets.begin(), offsets.end()), clipped_sizes.assign(sizes.begin(), sizes.end());
    clip(shape, std::span(clipped_offsets).subspan(i * shape.rank(), shape.rank()),
         std::span(clipped_sizes).subspan(i * shape.rank(), shape.rank()));
  }
  const box whole = box::whole(shape);
  if (whole.is_empty()) return out.report;
  const boxes b = clipped_sizes.empty() ? given : boxes{shape.rank(), clipped_offsets, clipped_sizes, owners};
  indices members;
  members.reserve(owners.size());
  for (std::uint32_t i = 0; i < owners.size(); ++i)
    if (!is_empty(b.rank, b.sizes_of(i))) members.push_back(i);
  if (equal == equal_boxes::replicas || shape.rank() == 0) members = first_of_equals(b, members);
  if (members.empty()) {
    out.add({cover_kind::gap, whole, 0, 0, 0, 0, {}});
    return out.report;
  }
  if (are_a_partition(whole, b, members)) return out.report;
  const suspicion s(b, whole, members);
  // The proof uses both measures, but a search uses one. If the search by the first finds nothing, the second does.
  for (const covering::which_mark which : {&covering::mark::first, &covering::mark::second}) {
    covering::defect_search search = s.search(true, which);
    if (!search.has_found()) continue;
    report_overlaps(s, search, out);
    report_gaps(s, search, out);
    break;
  }
  return out.report;
}

cover_report check_overlaps(std::size_t rank, std::span<const std::int64_t> offsets,
                            std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                            std::size_t max_problems, owner_space space) {
  const boxes b{rank, offsets, sizes, owners};
  if (tiles_a_box(rank, owners.size(), [&](std::size_t i) { return b.at_index(i); })) return {};
  report_writer out(max_problems, space);
  indices members;
  members.reserve(owners.size());
  extents low = extents::filled(rank, std::numeric_limits<std::int64_t>::max()), high = extents::filled(rank, 0);
  for (std::uint32_t i = 0; i < owners.size(); ++i) {
    if (!has_an_end(rank, b.offsets_of(i), b.sizes_of(i))) {
      out.add({cover_kind::out_of_bounds, b.at(i), owners[i], owners[i], i, i, {}});
      continue;
    }
    if (is_empty(b.rank, b.sizes_of(i))) continue;
    members.push_back(i);
    for (std::size_t d = 0; d < rank; ++d) {
      low[d] = std::min(low[d], b.begin(i, d));
      high[d] = std::max(high[d], b.end(i, d));
    }
  }
  if (rank == 0 || members.size() < 2) return out.report;
  box whole{low, high};
  for (std::size_t d = 0; d < rank; ++d) whole.sizes[d] -= low[d];
  const suspicion s(b, whole, members);
  report_overlaps(s, s.search(false, &covering::mark::first), out);
  return out.report;
}

}  // namespace shardmesh
