// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :element_pieces;
import :piece_joiner;

namespace shardmesh {

error too_many_pieces(std::string found) {
  return fail(errc::unsupported, "the mappings of a chain divide a tensor into too many parts")
      .with_values(fmt::format("at most {} parts", most_pieces), std::move(found))
      .with_hint("apply the mappings one after another");
}

namespace {

std::int64_t floor_of(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}
std::int64_t ceiling_of(std::int64_t a, std::int64_t b) {
  return -floor_of(-a, b);
}

// A loop of one piece in a dimension of the tensor between, and its step in the tensor on the other side.
struct near_loop {
  std::int64_t extent = 1, stride = 1;
  index_loop::step far;
};
// The outermost loop, which has the greatest stride, is first.
using near_loops = std::vector<near_loop>;

// The number of positions from the first to the last one.
std::int64_t width_of(std::span<const near_loop> loops) {
  std::int64_t width = 1;
  for (const near_loop& loop : loops) width += (loop.extent - 1) * loop.stride;
  return width;
}

near_loops without_first(const near_loops& loops) {
  return {loops.begin() + 1, loops.end()};
}

// The outermost loop, divided into one with `stride` and one for the steps between; the rest of its steps, if any.
struct divided_loops {
  near_loops whole, rest;
  std::int64_t rest_begin = 0;  // the first step of the rest
};
divided_loops divided(const near_loops& loops, std::int64_t stride) {
  const near_loop& first = loops[0];
  const std::int64_t steps = stride / first.stride, count = first.extent / steps;
  divided_loops made;
  made.rest_begin = count * steps;
  made.whole.push_back({count, stride, {first.far.dimension, first.far.stride * steps}});
  made.whole.push_back({steps, first.stride, first.far});
  made.rest.push_back({first.extent - made.rest_begin, first.stride, first.far});
  for (near_loops* const list : {&made.whole, &made.rest}) list->insert(list->end(), loops.begin() + 1, loops.end());
  return made;
}

// Joins a piece of the first mapping and one of the second in the tensor between them.
class piece_joiner {
 public:
  piece_joiner(const index_piece& first, const index_piece& second) : first_(first), second_(second) {}

  result<std::vector<index_piece>> join() {
    std::vector<index_piece> made{{0, 0, first_.left_origin, second_.right_origin, {}}};
    // Loops that do not move in the tensor between: repetitions of the first source or of the last target.
    for (const index_loop& loop : first_.loops)
      if (loop.right.dimension < 0) made[0].loops.push_back({loop.extent, loop.left, {}});
    for (const index_loop& loop : second_.loops)
      if (loop.left.dimension < 0) made[0].loops.push_back({loop.extent, {}, loop.right});
    for (std::size_t d = 0; d < first_.right_origin.rank(); ++d) {
      const auto of_first = loops_in(d, first_.loops, &index_loop::right, &index_loop::left);
      const auto of_second = loops_in(d, second_.loops, &index_loop::left, &index_loop::right);
      made_.clear();
      for (index_piece& one : made)
        SHARDMESH_TRY(refine(of_first, of_second, second_.left_origin[d] - first_.right_origin[d], std::move(one)));
      made = std::exchange(made_, {});
    }
    for (index_piece& one : made) {
      one.loops = joined_loops(std::move(one.loops));
      if (one.loops.size() > max_rank)
        return fail(errc::rank_too_large, "the mappings of a chain relate the elements by too many factors")
            .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", one.loops.size()));
    }
    return made;
  }

 private:
  using side = index_loop::step index_loop::*;

  static near_loops loops_in(std::size_t d, const std::vector<index_loop>& loops, side near, side far) {
    near_loops made;
    for (const index_loop& loop : loops)
      if ((loop.*near).dimension == static_cast<std::int32_t>(d))
        made.push_back({loop.extent, (loop.*near).stride, loop.*far});
    std::sort(made.begin(), made.end(), [](const near_loop& a, const near_loop& b) { return a.stride > b.stride; });
    return made;
  }

  static void move(extents& position, const index_loop::step& step, std::int64_t count) {
    if (step.dimension >= 0) position[static_cast<std::size_t>(step.dimension)] += count * step.stride;
  }

  // Adds to `made_` the pieces of the positions that both loops reach: sum of i * stride on the left, and `offset` +
  // sum of j * stride on the right. `here` has the loops found so far.
  result<void> refine(near_loops left, near_loops right, std::int64_t offset, index_piece here) {
    std::erase_if(left, [](const near_loop& loop) { return loop.extent == 1; });
    std::erase_if(right, [](const near_loop& loop) { return loop.extent == 1; });
    if (offset >= width_of(left) || offset + width_of(right) <= 0) return {};
    if (left.empty() && right.empty()) {
      if (++count_ > most_pieces) return too_many_pieces("more");
      made_.push_back(std::move(here));
      return {};
    }
    const std::int64_t on_left = left.empty() ? 0 : left[0].stride, on_right = right.empty() ? 0 : right[0].stride;
    if (on_left == on_right) return refine_equal(left, right, offset, here);
    if (on_left > on_right) {
      if (on_right > 0 && on_left % on_right == 0 && right[0].extent > on_left / on_right) {
        const divided_loops parts = divided(right, on_left);
        const near_loop& first = right[0];
        SHARDMESH_TRY(refine(left, parts.whole, offset, here));
        if (parts.rest[0].extent == 0) return {};
        move(here.right_origin, first.far, parts.rest_begin);
        return refine(left, parts.rest, offset + parts.rest_begin * first.stride, std::move(here));
      }
      return step_left(left, right, offset, here);
    }
    if (on_left > 0 && on_right % on_left == 0 && left[0].extent > on_right / on_left) {
      const divided_loops parts = divided(left, on_right);
      const near_loop& first = left[0];
      SHARDMESH_TRY(refine(parts.whole, right, offset, here));
      if (parts.rest[0].extent == 0) return {};
      move(here.left_origin, first.far, parts.rest_begin);
      return refine(parts.rest, right, offset - parts.rest_begin * first.stride, std::move(here));
    }
    return step_right(left, right, offset, here);
  }

  // Both outermost loops have one stride. A step of the right loop may reach into two steps of the left one.
  result<void> refine_equal(const near_loops& left, const near_loops& right, std::int64_t offset,
                            const index_piece& here) {
    const near_loop &l = left[0], &r = right[0];
    const std::int64_t steps = floor_of(offset, l.stride), rest = offset - steps * l.stride;
    for (std::int64_t next = 0; next < (rest == 0 ? 1 : 2); ++next) {
      const std::int64_t ahead = steps + next;  // the step of the left loop is that of the right one plus `ahead`
      const std::int64_t begin = std::max(std::int64_t{0}, -ahead), end = std::min(r.extent, l.extent - ahead);
      if (begin >= end) continue;
      index_piece made = here;
      move(made.left_origin, l.far, begin + ahead);
      move(made.right_origin, r.far, begin);
      if (end - begin > 1 && (l.far.dimension >= 0 || r.far.dimension >= 0))
        made.loops.push_back({end - begin, l.far, r.far});
      SHARDMESH_TRY(refine(without_first(left), without_first(right), rest - next * l.stride, std::move(made)));
    }
    return {};
  }

  // Takes the steps of the left outermost loop one by one.
  result<void> step_left(const near_loops& left, const near_loops& right, std::int64_t offset,
                         const index_piece& here) {
    const near_loop& outer = left[0];
    const near_loops inner = without_first(left);
    const std::int64_t begin = std::max(std::int64_t{0}, ceiling_of(offset - width_of(inner) + 1, outer.stride));
    const std::int64_t end = std::min(outer.extent, floor_of(offset + width_of(right) - 1, outer.stride) + 1);
    if (end - begin > most_pieces) return too_many_pieces("more");
    for (std::int64_t i = begin; i < end; ++i) {
      index_piece made = here;
      move(made.left_origin, outer.far, i);
      SHARDMESH_TRY(refine(inner, right, offset - i * outer.stride, std::move(made)));
    }
    return {};
  }

  result<void> step_right(const near_loops& left, const near_loops& right, std::int64_t offset,
                          const index_piece& here) {
    const near_loop& outer = right[0];
    const near_loops inner = without_first(right);
    const std::int64_t begin = std::max(std::int64_t{0}, ceiling_of(1 - width_of(inner) - offset, outer.stride));
    const std::int64_t end = std::min(outer.extent, floor_of(width_of(left) - 1 - offset, outer.stride) + 1);
    if (end - begin > most_pieces) return too_many_pieces("more");
    for (std::int64_t j = begin; j < end; ++j) {
      index_piece made = here;
      move(made.right_origin, outer.far, j);
      SHARDMESH_TRY(refine(left, inner, offset + j * outer.stride, std::move(made)));
    }
    return {};
  }

  const index_piece &first_, &second_;
  std::vector<index_piece> made_;
  std::int64_t count_ = 0;
};

}  // namespace

result<std::vector<index_piece>> joined(const index_piece& first, const index_piece& second) {
  return piece_joiner(first, second).join();
}

}  // namespace shardmesh
