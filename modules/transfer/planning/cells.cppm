// SPDX-License-Identifier: Apache-2.0
// Groups of fragments with equal boxes, and steps between two fragments: the building blocks of the transfer rules.
// Exports nothing.
export module shardmesh.transfer:cells;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :step;

namespace shardmesh {

using owner_list = std::vector<owner_id>;

// Recycled lists of fragments (see `expansion_memory`).
std::vector<fragment> take_fragments();
void give_back_fragments(std::vector<fragment> list);

// Orders boxes: the result is less than, equal to, or greater than 0. A plain loop, because the constant evaluator
// counts every call.
constexpr int compare_boxes(const box& a, const box& b) {
  for (std::size_t d = 0; d < a.rank(); ++d)
    if (a.offsets[d] != b.offsets[d]) return a.offsets[d] < b.offsets[d] ? -1 : 1;
  for (std::size_t d = 0; d < a.rank(); ++d)
    if (a.sizes[d] != b.sizes[d]) return a.sizes[d] < b.sizes[d] ? -1 : 1;
  return 0;
}

// Groups of fragments with equal boxes, ordered by box, then by term, owner, and slot.
struct groups {
  std::vector<fragment> all;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;

  constexpr groups() {
    if (!std::is_constant_evaluated()) all = take_fragments();
  }
  constexpr groups(groups&&) noexcept = default;
  constexpr groups& operator=(groups&&) noexcept = default;
  constexpr ~groups() {
    if (!std::is_constant_evaluated()) give_back_fragments(std::move(all));
  }

  constexpr void add(const fragment& f) {
    if (!f.where.is_empty()) all.push_back(f);
  }
  constexpr void finish() {
    const auto before = [](const fragment& a, const fragment& b) {
      if (const int order = compare_boxes(a.where, b.where); order != 0) return order < 0;
      if (a.term != b.term) return a.term < b.term;
      return a.owner != b.owner ? a.owner < b.owner : a.slot < b.slot;
    };
    if (!std::is_sorted(all.begin(), all.end(), before)) std::sort(all.begin(), all.end(), before);
    for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
      while (last < all.size() && compare_boxes(all[last].where, all[first].where) == 0) ++last;
      ranges.emplace_back(first, last);
    }
  }
  constexpr std::span<const fragment> group(std::size_t i) const {
    return std::span(all).subspan(ranges[i].first, ranges[i].second - ranges[i].first);
  }
};

template <class Distribution>
constexpr groups overlapping(const Distribution& d, const box& where) {
  groups found;
  d.overlapping(where, [&](const fragment& f) { return found.add(f), true; });
  found.finish();
  return found;
}

template <class Distribution>
constexpr groups local_view(const Distribution& d, owner_id owner) {
  groups found;
  d.fragments_of(owner, [&](const fragment& f) { return found.add(f), true; });
  found.finish();
  return found;
}

// The owners of one term, ascending and unique. Precondition: `group` is sorted by term, then by owner.
constexpr owner_list owners_of(std::span<const fragment> group, std::int32_t term) {
  owner_list owners;
  for (const fragment& f : group)
    if (f.term == term && (owners.empty() || owners.back() != f.owner)) owners.push_back(f.owner);
  return owners;
}

constexpr bool contains(const owner_list& sorted, owner_id owner) {
  return std::binary_search(sorted.begin(), sorted.end(), owner);
}

constexpr const fragment* find(std::span<const fragment> group, owner_id owner, std::int32_t term) {
  for (const fragment& f : group)
    if (f.owner == owner && f.term == term) return &f;
  return nullptr;
}

constexpr std::vector<std::int32_t> terms_of(std::span<const fragment> group) {
  std::vector<std::int32_t> terms;
  for (const fragment& f : group)
    if (terms.empty() || terms.back() != f.term) terms.push_back(f.term);
  return terms;
}

constexpr step_end end_in(const fragment& f, buffer_side side, const box& cell) {
  extents offsets = f.local_offsets;
  for (std::size_t d = 0; d < offsets.rank(); ++d) offsets[d] += cell.offsets[d] - f.where.offsets[d];
  return {f.owner, side, f.slot, offsets};
}

constexpr step_end staging_of(owner_id owner, const box& cell) {
  return {owner, buffer_side::staging, 0, extents::filled(cell.rank(), 0)};
}

constexpr step copy_step(step_phase phase, const box& cell, step_end from, step_end to, std::int32_t term) {
  step s;
  s.phase = phase;
  s.where = cell;
  s.term = term;
  s.from = std::move(from);
  s.to = std::move(to);
  return s;
}

}  // namespace shardmesh
