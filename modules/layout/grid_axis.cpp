// SPDX-License-Identifier: Apache-2.0
// The coordinates and runs of one dimension of a grid.
module;
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>
module shardmesh.layout;

import :grid_axis;

namespace shardmesh {
namespace {

using runs = std::vector<index_run>;

// Returns whether the part sizes under this rule never increase: one or two series of equal sizes, then a remainder.
bool is_even(const split_rule& rule) {
  return rule.policy() == split_policy::torch_chunk || rule.policy() == split_policy::balanced;
}

class axis_maker {
 public:
  axis_maker(std::span<const mesh_cut> cuts, std::span<const std::int64_t> strides, index_range within)
      : cuts_(cuts), strides_(strides), begin_(within.begin), end_(within.begin + within.size) {}

  run_axis make(std::int64_t length) {
    collect(0, whole_dimension(length), 0);
    const auto before = [](const found& a, const found& b) { return a.first.begin < b.first.begin; };
    if (!std::is_sorted(found_.begin(), found_.end(), before)) std::sort(found_.begin(), found_.end(), before);
    run_axis axis;
    for (const found& f : found_) axis.append(f.first, f.count, f.step);
    return axis;
  }

 private:
  struct found {
    owned_run first, step;
    std::int64_t count = 1;
  };

  void collect(std::size_t level, const runs& held, std::int64_t owner) {
    if (level == cuts_.size()) {
      for (const index_run& r : held) add({r.global, r.size, r.local, owner});
      return;
    }
    const dimension_cut& cut = cuts_[level].cut;
    const std::int64_t stride = strides_[cuts_[level].mesh_dim];
    const bool is_plain = level + 1 == cuts_.size() && cut.is_plain() && held.size() == 1;
    for (const auto& [first, last] : coordinates_that_hold(held, cut, begin_, end_)) {
      if (is_plain) {
        add_parts(held.front(), cut, first, last, owner, stride);
        continue;
      }
      for (std::int64_t c = first; c <= last; ++c) collect(level + 1, cut_runs(held, cut, c), owner + c * stride);
    }
  }

  // Adds the parts first .. last of a run. Consecutive parts of the same size are added together.
  void add_parts(const index_run& whole, const dimension_cut& cut, std::int64_t first, std::int64_t last,
                 std::int64_t owner, std::int64_t stride) {
    const auto part = [&](std::int64_t c) { return cut.rule.part(whole.size, cut.parts, c); };
    for (std::int64_t c = first; c <= last;) {
      const index_range one = part(c);
      // The last part known to have this size, and the first known not to.
      std::int64_t same = c, other = is_even(cut.rule) ? last + 1 : c + 1;
      while (other - same > 1) {
        const std::int64_t middle = same + (other - same) / 2;
        (part(middle).size == one.size ? same : other) = middle;
      }
      if (one.size > 0)
        add({whole.global + one.begin, one.size, 0, owner + c * stride}, {one.size, 0, 0, stride}, same - c + 1);
      c = same + 1;
    }
  }

  // Adds the part of the runs that lies within the range. The range may cut the first and the last run.
  void add(owned_run first, const owned_run& step = {}, std::int64_t count = 1) {
    const auto is_cut = [&](const owned_run& r) { return r.begin < begin_ || r.begin + r.size > end_; };
    if (is_cut(first)) {
      add_cut(first);
      if (--count == 0) return;
      first.begin += step.begin, first.owner += step.owner;
    }
    const owned_run last{first.begin + (count - 1) * step.begin, first.size, first.local,
                         first.owner + (count - 1) * step.owner};
    const bool ends_cut = is_cut(last);
    if (ends_cut) --count;
    if (count > 0) found_.push_back({first, count == 1 ? owned_run{} : step, count});
    if (ends_cut) add_cut(last);
  }

  void add_cut(const owned_run& r) {
    const std::int64_t from = std::max(r.begin, begin_), to = std::min(r.begin + r.size, end_);
    if (from < to) found_.push_back({{from, to - from, r.local + from - r.begin, r.owner}, {}, 1});
  }

  std::span<const mesh_cut> cuts_;
  std::span<const std::int64_t> strides_;
  std::int64_t begin_, end_;
  std::vector<found> found_;
};

using coordinate_ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Sorts ranges, and joins those that overlap or touch.
coordinate_ranges joined(coordinate_ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::size_t kept = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first <= ranges[kept].second + 1)
      ranges[kept].second = std::max(ranges[kept].second, ranges[i].second);
    else
      ranges[++kept] = ranges[i];
  }
  if (!ranges.empty()) ranges.resize(kept + 1);
  return ranges;
}

// `coordinates_that_hold` of a cut of segments. The indices [begin, end) that are held have consecutive local indices.
coordinate_ranges coordinates_of_segments(const runs& held, const dimension_cut& cut, std::int64_t begin,
                                          std::int64_t end) {
  coordinate_ranges ranges;
  const std::int64_t first = held_below(held, begin), last = held_below(held, end);  // local, half-open
  std::int64_t segment_begin = 0, end_of_segment = 0;
  for (const std::int64_t size : cut.segments) {
    end_of_segment += size;
    const std::int64_t segment_end = held_below(held, end_of_segment), length = segment_end - segment_begin;
    const std::int64_t from = std::max(first, segment_begin), to = std::min(last, segment_end);
    if (from < to)
      ranges.emplace_back(cut.rule.part_of(length, cut.parts, from - segment_begin),
                          cut.rule.part_of(length, cut.parts, to - 1 - segment_begin));
    segment_begin = segment_end;
  }
  return joined(std::move(ranges));
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> coordinates_that_hold(const runs& held, const dimension_cut& cut,
                                                                         std::int64_t begin, std::int64_t end) {
  const std::int64_t length = length_of(held);
  if (length == 0) return {};
  if (!cut.segments.empty()) return coordinates_of_segments(held, cut, begin, end);
  if (cut.pieces > 1 && cut.parts > 1 && pieces_are_single(cut, length)) return {{0, 0}};
  coordinate_ranges ranges;
  const std::int64_t pieces = cut.pieces == 1 || cut.parts == 1 ? 1 : cut.pieces;
  auto run =
      std::partition_point(held.begin(), held.end(), [&](const index_run& r) { return r.global + r.size <= begin; });
  for (; run != held.end() && run->global < end; ++run) {
    const std::int64_t first = run->local + std::max<std::int64_t>(begin - run->global, 0);
    const std::int64_t last = run->local + std::min(end - run->global, run->size) - 1;
    const std::int64_t last_piece = pieces == 1 ? 0 : cut.rule.part_of(length, pieces, last);
    for (std::int64_t p = pieces == 1 ? 0 : cut.rule.part_of(length, pieces, first); p <= last_piece; ++p) {
      const index_range piece = pieces == 1 ? index_range{0, length} : cut.rule.part(length, pieces, p);
      const std::int64_t from = std::max(first - piece.begin, std::int64_t{0});
      const std::int64_t to = std::min(last - piece.begin, piece.size - 1);
      ranges.emplace_back(cut.rule.part_of(piece.size, cut.parts, from), cut.rule.part_of(piece.size, cut.parts, to));
    }
  }
  return joined(std::move(ranges));
}

run_axis axis_of(std::span<const mesh_cut> cuts, std::span<const std::int64_t> strides, std::int64_t length,
                 index_range within) {
  return axis_maker(cuts, strides, within).make(length);
}

}  // namespace shardmesh
