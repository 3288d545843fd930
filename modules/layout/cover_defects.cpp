// SPDX-License-Identifier: Apache-2.0
// The search for defects (cover_search.hpp), after the proof of coverage has failed.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "box_index.hpp"
#include "cover_degrees.hpp"
#include "cover_join.hpp"
#include "cover_measure.hpp"
#include "cover_search.hpp"
module shardmesh.layout;

import :box_arrays;
import :cover_defects;

namespace shardmesh {
namespace {

// A set of boxes in a region that is known not to hold every cell exactly once.
struct suspicion {
  const box_arrays& b;
  const box& whole;
  const box_indices& members;     // not empty, inside the region; ascending
  std::vector<std::size_t> cuts;  // dimensions that some member does not span; at least one

  suspicion(const box_arrays& all, const box& region, const box_indices& which)
      : b(all), whole(region), members(which) {
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
  covering::degree_counter degrees(const box_indices& some) const {
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
bool name_overlaps(const box_arrays& b, const box_indices& some, std::int64_t work, cover_report_writer& out) {
  const box_index index(b.rank, b.offsets, b.sizes, some);
  std::int64_t spent = 0;
  box_indices others;
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

void name_shared_cells(const suspicion& s, const covering::defect_search& search, cover_report_writer& out) {
  box_indices some;  // contains all boxes that share cells with others
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
    box_indices sharing;
    for (std::size_t i = 0; i < some.size(); ++i)
      if (counter.degrees()[i] != 0) sharing.push_back(some[i]);
    out.forget(named_before);
    name_overlaps(s.b, sharing, work, out);
  }
  out.report.total = before + std::max(out.report.total - before, counter.pairs());
  if (!counter.is_complete()) out.report.total_is_exact = false;
}

void report_gaps(const suspicion& s, covering::defect_search& search, cover_report_writer& out) {
  std::vector<std::int64_t>& gaps = search.gaps();
  const std::size_t dims = s.cuts.size();
  covering::join_touching(gaps, dims);
  box_indices order(gaps.size() / (2 * dims));
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

void report_defects(const box_arrays& b, const box& whole, const box_indices& members, cover_report_writer& out) {
  const suspicion s(b, whole, members);
  // The proof uses both measures, but a search uses one. If the search by the first finds nothing, the second does.
  for (const covering::which_mark which : {&covering::mark::first, &covering::mark::second}) {
    covering::defect_search search = s.search(true, which);
    if (!search.has_found()) continue;
    name_shared_cells(s, search, out);
    report_gaps(s, search, out);
    break;
  }
}

void report_overlaps(const box_arrays& b, const box& whole, const box_indices& members, cover_report_writer& out) {
  const suspicion s(b, whole, members);
  name_shared_cells(s, s.search(false, &covering::mark::first), out);
}

}  // namespace shardmesh
