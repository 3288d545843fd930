// SPDX-License-Identifier: Apache-2.0
// Checks coverage in two steps: the proof (`cover_proof.cpp`) and, if it fails, the search for defects
// (`cover_defects`).
module;
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cover_measure.hpp"
module shardmesh.layout;

import :box_arrays;
import :cover_defects;
import :model;

namespace shardmesh {
namespace {

// Cuts a box to its part in the tensor; invalid boxes become empty.
void clip(const extents& shape, std::span<std::int64_t> offsets, std::span<std::int64_t> sizes) {
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const auto end = checked_add(offsets[d], sizes[d]);
    const std::int64_t from = std::clamp<std::int64_t>(offsets[d], 0, shape[d]);
    sizes[d] = sizes[d] <= 0 || !end ? 0 : std::clamp<std::int64_t>(*end, from, shape[d]) - from;
    offsets[d] = from;
  }
}

// Returns the first of each set of equal boxes, ascending.
box_indices first_of_equals(const box_arrays& b, const box_indices& members) {
  std::size_t capacity = 16;
  while (capacity < members.size() * 2) capacity *= 2;
  box_indices table(capacity, 0);  // member + 1
  box_indices distinct;
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

bool are_a_partition(const box& whole, const box_arrays& b, const box_indices& members) {
  covering::tally sum(b.rank);
  for (const std::uint32_t i : members) sum.add(b.offsets_of(i), b.sizes_of(i));
  return sum.equals(whole.offsets.data(), whole.sizes.data());
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

cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems, owner_space space, equal_boxes equal) {
  const box_arrays given{shape.rank(), offsets, sizes, owners};
  if (is_partition(shape, owners.size(), [&](std::size_t i) { return given.at_index(i); })) return {};
  cover_report_writer out(max_problems, space);
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
  const box_arrays b = clipped_sizes.empty() ? given : box_arrays{shape.rank(), clipped_offsets, clipped_sizes, owners};
  box_indices members;
  members.reserve(owners.size());
  for (std::uint32_t i = 0; i < owners.size(); ++i)
    if (!is_empty(b.rank, b.sizes_of(i))) members.push_back(i);
  if (equal == equal_boxes::replicas || shape.rank() == 0) members = first_of_equals(b, members);
  if (members.empty()) {
    out.add({cover_kind::gap, whole, 0, 0, 0, 0, {}});
    return out.report;
  }
  if (are_a_partition(whole, b, members)) return out.report;
  report_defects(b, whole, members, out);
  return out.report;
}

cover_report check_overlaps(std::size_t rank, std::span<const std::int64_t> offsets,
                            std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                            std::size_t max_problems, owner_space space) {
  const box_arrays b{rank, offsets, sizes, owners};
  if (tiles_a_box(rank, owners.size(), [&](std::size_t i) { return b.at_index(i); })) return {};
  cover_report_writer out(max_problems, space);
  box_indices members;
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
  report_overlaps(b, whole, members, out);
  return out.report;
}

}  // namespace shardmesh
