// SPDX-License-Identifier: Apache-2.0
// The arithmetic behind `layout`, grids, and `static_layout`: mesh dimensions cut one tensor dimension, one after the
// other. A coordinate's share of a dimension is a list of runs; its share of a tensor is the product of those lists.
export module shardmesh.layout:cut;

import shardmesh.std;
import shardmesh.core;
import :split_rule;

export namespace shardmesh {

/// Indices [global, global + size) of a tensor dimension, which lie at [local, local + size) of the holder's tensor.
struct index_run {
  std::int64_t global = 0, size = 0, local = 0;
  friend constexpr bool operator==(const index_run&, const index_run&) = default;
};

/// One mesh dimension that cuts a tensor dimension into `parts`. `pieces` is a strided shard's split factor, else 1.
/// `segments` are the sizes of the segments that are cut one by one; empty for other cuts.
struct dimension_cut {
  std::int64_t parts = 1;
  std::int64_t pieces = 1;
  split_rule rule;
  std::vector<std::int64_t> segments{};

  /// Returns whether the cut gives each coordinate one range of local indices.
  constexpr bool is_plain() const { return pieces == 1 && segments.empty(); }
};

/// The maximum number of boxes that a layout gives one rank. More is a mistake or an attack: no strided shard needs as
/// many pieces.
inline constexpr std::int64_t max_boxes_of_a_rank = std::int64_t{1} << 22;

/// Number of local indices that the runs hold.
constexpr std::int64_t length_of(const std::vector<index_run>& runs) {
  return runs.empty() ? 0 : runs.back().local + runs.back().size;
}

/// Returns the runs of a whole dimension: one run, or none when the dimension is empty.
constexpr std::vector<index_run> whole_dimension(std::int64_t size) {
  std::vector<index_run> runs;
  if (size > 0) runs.push_back({0, size, 0});
  return runs;
}

}  // namespace shardmesh

namespace shardmesh {

// Appends the part of `runs` at the local indices `range`, merging runs that touch. Cost: O(log runs + result).
constexpr void append_slice(const std::vector<index_run>& runs, index_range range, std::vector<index_run>& out) {
  if (range.size == 0) return;
  const std::int64_t end = range.begin + range.size;
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const index_run& r) { return r.local + r.size <= range.begin; });
  for (; run != runs.end() && run->local < end; ++run) {
    const std::int64_t from = std::max(run->local, range.begin);
    const std::int64_t size = std::min(run->local + run->size, end) - from;
    const std::int64_t global = run->global + (from - run->local);
    if (!out.empty() && out.back().global + out.back().size == global)
      out.back().size += size;
    else
      out.push_back({global, size, length_of(out)});
  }
}

// Returns the number of indices of `runs` that are below `global`. The runs ascend. Cost: O(log runs).
constexpr std::int64_t held_below(const std::vector<index_run>& runs, std::int64_t global) {
  const auto run =
      std::partition_point(runs.begin(), runs.end(), [&](const index_run& r) { return r.global + r.size <= global; });
  if (run == runs.end()) return length_of(runs);
  return run->local + std::max(global - run->global, std::int64_t{0});
}

// Returns part `index` of each segment, restricted to the indices of `runs`, one after the other.
constexpr std::vector<index_run> cut_segments(const std::vector<index_run>& runs, const dimension_cut& cut,
                                              std::int64_t index) {
  std::vector<index_run> held;
  std::int64_t begin = 0, end_of_segment = 0;  // `begin`: local index of the segment's first one
  for (const std::int64_t size : cut.segments) {
    end_of_segment += size;
    const std::int64_t end = held_below(runs, end_of_segment);
    const index_range part = cut.rule.part(end - begin, cut.parts, index);
    append_slice(runs, {begin + part.begin, part.size}, held);
    begin = end;
  }
  return held;
}

}  // namespace shardmesh

export namespace shardmesh {

/// Returns whether a strided cut has pieces of one index each; coordinate 0 then holds all of them.
constexpr bool pieces_are_single(const dimension_cut& cut, std::int64_t length) {
  return cut.pieces >= length;
}

/// Returns the share of `runs` that coordinate `index` of a cut holds, in PyTorch's local order. The runs ascend, and
/// so does the share.
/// Cost: O(log runs + result), times the pieces of a strided cut, or times the segments.
/// Source: torch.distributed.tensor.placement_types Shard and _StridedShard `_split_tensor`.
constexpr std::vector<index_run> cut_runs(const std::vector<index_run>& runs, const dimension_cut& cut,
                                          std::int64_t index) {
  const std::int64_t length = length_of(runs);
  std::vector<index_run> held;
  if (length == 0) return held;
  if (!cut.segments.empty()) return cut_segments(runs, cut, index);
  if (cut.pieces == 1) {
    append_slice(runs, cut.rule.part(length, cut.parts, index), held);
  } else if (cut.parts == 1 || (pieces_are_single(cut, length) && index == 0)) {
    held = runs;
  } else if (!pieces_are_single(cut, length)) {
    for (std::int64_t p = 0; p < cut.pieces; ++p) {
      const index_range piece = cut.rule.part(length, cut.pieces, p);
      if (piece.size == 0) break;
      const index_range part = cut.rule.part(piece.size, cut.parts, index);
      append_slice(runs, {piece.begin + part.begin, part.size}, held);
    }
  }
  return held;
}

}  // namespace shardmesh

namespace shardmesh {

// Visits the product of the runs of every dimension, row-major in local order. Stops and returns false when
// `visit(box, local_offsets)` returns false. A rank that holds nothing of some dimension has no boxes.
template <class Visit>
constexpr bool for_each_box(std::span<const std::vector<index_run>> runs, Visit&& visit) {
  const std::size_t rank = runs.size();
  box where{extents::filled(rank, 0), extents::filled(rank, 0)};
  extents local = extents::filled(rank, 0);
  std::size_t at[max_rank] = {};
  for (const auto& one : runs)
    if (one.empty()) return true;
  while (true) {
    for (std::size_t d = 0; d < rank; ++d) {
      const index_run& run = runs[d][at[d]];
      where.offsets[d] = run.global;
      where.sizes[d] = run.size;
      local[d] = run.local;
    }
    if (!visit(where, local)) return false;
    std::size_t d = rank;
    while (d > 0 && ++at[d - 1] == runs[d - 1].size()) at[--d] = 0;
    if (d == 0) return true;
  }
}

}  // namespace shardmesh
