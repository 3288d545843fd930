// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.transfer;

import :transfer_check;

namespace shardmesh {
namespace {

constexpr std::size_t named_boxes = 100;

// Rejects overlaps of different boxes, on either side.
result<cover_report> check_overlaps(const distribution& d, const char* side) {
  cover_report report = check_cover(d, 1'000'000);
  std::vector<const cover_problem*> overlaps;
  for (const cover_problem& p : report.problems)
    if (p.kind == cover_kind::overlap) overlaps.push_back(&p);
  if (overlaps.empty()) return report;
  error e = fail(errc::overlap, fmt::format("{} different boxes of the {} overlap, the first: {}", overlaps.size() * 2,
                                            side, to_string(*overlaps.front())));
  for (std::size_t i = 0; i < std::min(overlaps.size(), named_boxes); ++i) {
    e.boxes.push_back(overlaps[i]->where);
    for (const owner_id owner : {overlaps[i]->first, overlaps[i]->second})
      if (std::find(e.ranks.begin(), e.ranks.end(), owner) == e.ranks.end()) e.ranks.push_back(owner);
  }
  return e;
}

// Finds cells that `to` wants and no owner of `from` holds. A source may lack cells that `to` does not want, because it
// may be a part of a checkpoint.
result<void> check_gaps(const cover_report& source, const distribution& to) {
  constexpr std::size_t most_missing = 10'000;  // the search stops at this many
  std::vector<box> missing;
  for (const cover_problem& p : source.problems) {
    if (p.kind != cover_kind::gap) continue;
    to.overlapping(p.where, [&](const fragment& f) {
      const box cell = *intersect(f.where, p.where);
      if (std::find(missing.begin(), missing.end(), cell) == missing.end()) missing.push_back(cell);
      return missing.size() < most_missing;
    });
    if (missing.size() >= most_missing) break;
  }
  if (missing.empty() && !source.total_is_exact)  // the search ended early
    return fail(errc::gap,
                "the source has too many gaps and overlaps to determine whether it holds the requested boxes");
  if (missing.empty()) return {};
  error e = fail(errc::gap, fmt::format("{}{} held by no owner", missing.size() >= most_missing ? "at least " : "",
                                        detail::counted(missing.size(), "requested box is", "requested boxes are")));
  missing.resize(std::min(missing.size(), named_boxes));
  e.boxes = std::move(missing);
  return e;
}

// Rejects sub-byte elements that are cut inside a byte.
result<void> check_alignment(const distribution& d, dtype type) {
  if (bits(type) % 8 == 0) return {};
  std::optional<error> problem;
  d.for_each_owner([&](owner_id owner) {
    if (problem) return;
    d.fragments_of(owner, [&](const fragment& f) {
      const bool aligned = is_byte_aligned(f.where, f.local_offsets, d.global_shape(), type);
      if (!aligned)
        problem = fail(errc::unaligned, fmt::format("{} elements are cut inside a byte", name(type)))
                      .with_rank(owner)
                      .with_box(f.where);
      return aligned;
    });
  });
  if (problem) return *problem;
  return {};
}

result<void> check_dtypes(const tensor_transfer& t, const plan_options& options) {
  return check_cast(t.from_type, t.to_type, options.allow_narrowing);
}

}  // namespace

result<transfer_class> make_class(const tensor_transfer& t, const plan_options& options) {
  if (t.from.global_shape() != t.to.global_shape())
    return fail(errc::shape_mismatch, "the source and the destination differ in shape")
        .with_values(to_string(t.from.global_shape()), to_string(t.to.global_shape()));
  SHARDMESH_TRY(check_dtypes(t, options));
  SHARDMESH_TRY(check_alignment(t.from, t.from_type));
  SHARDMESH_TRY(check_alignment(t.to, t.to_type));
  if (!has_countable_bytes(t.from.global_shape(), t.from_type, t.to_type))
    return fail(errc::overflow,
                fmt::format("the bytes of shape {} do not fit in 64 bits", to_string(t.from.global_shape())));
  transfer_class c{t.from, t.to, t.from_type, t.to_type, mode_between(t.from, t.to), options.reduce_grain_bytes};
  if (t.from.reduction() != reduce_op::none) {
    if (t.from.space() == owner_space::items) return fail(errc::unsupported, "items cannot hold terms of a reduction");
    if (c.mode == transfer_mode::reduce && bits(t.from_type) % 8 != 0)
      return fail(errc::unsupported, fmt::format("values of {} cannot be reduced", name(t.from_type)));
  }
  if (!t.from.is_complete()) {
    SHARDMESH_TRY(const cover_report report, check_overlaps(t.from, "source"));
    SHARDMESH_TRY(check_gaps(report, t.to));
  }
  if (!t.to.is_complete()) SHARDMESH_TRY(check_overlaps(t.to, "destination"));
  return c;
}

}  // namespace shardmesh
