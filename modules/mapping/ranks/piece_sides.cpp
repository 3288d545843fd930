// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.layout;
import :element_pieces;
import :gather;
import :piece_sides;

namespace shardmesh {
namespace {

constexpr std::int64_t most_boxes = std::int64_t{1} << 20;

index_piece with_sides_exchanged(const index_piece& piece) {
  index_piece made{piece.right_tensor, piece.left_tensor, piece.right_origin, piece.left_origin, piece.loops};
  for (index_loop& loop : made.loops) std::swap(loop.left, loop.right);
  return made;
}

// Calls `visit(fragment, ranges)` for the boxes of the loops that a rank holds of the piece's right side. A loop that
// the right side lacks has the range [0, 1).
template <class Visit>
void for_each_box(const index_piece& piece, const distribution& held, owner_id rank, const Visit& visit) {
  held.fragments_of(rank, [&](const fragment& f) {
    if (f.where.is_empty()) return true;
    const auto ended = for_each_loop_box(piece, f.where, [&](std::vector<loop_range>& ranges) -> result<void> {
      visit(f, std::as_const(ranges));
      return {};
    });
    return ended.has_value();  // the visitor returns no error
  });
}

box box_of(const piece_space& space, const std::vector<loop_range>& ranges) {
  box made;
  for (const std::size_t l : space.loops) {
    made.offsets.push_back(ranges[l].begin);
    made.sizes.push_back(ranges[l].size);
  }
  return made;
}

// The box on the target's side, which has all indices of the source's repetitions.
box target_box_of(const piece_space& space, const std::vector<loop_range>& ranges) {
  box made = box_of(space, ranges);
  for (std::size_t d = 0; d < space.repeated; ++d) made.sizes[d] = space.shape[d];
  return made;
}

// Elements of a slot's memory from its first one to the piece's origin.
template <tensor_view_type View>
std::int64_t origin_in(const View& slot, const fragment& f, const extents& origin) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < origin.rank(); ++d)
    at += (origin[d] - f.where.offsets[d] + f.local_offsets[d]) * slot.strides[d];
  return at;
}

template <tensor_view_type View>
std::int64_t stride_in(const View& slot, const index_loop::step& step) {
  return step.dimension < 0 ? 0 : slot.strides[static_cast<std::size_t>(step.dimension)] * step.stride;
}

// The parts of [offset, offset + size) between cuts.
std::vector<std::pair<std::int64_t, std::int64_t>> parts_between(const std::vector<std::int64_t>& cuts,
                                                                 std::int64_t offset, std::int64_t size) {
  std::vector<std::pair<std::int64_t, std::int64_t>> made;
  std::int64_t begin = offset;
  for (auto cut = std::upper_bound(cuts.begin(), cuts.end(), offset); cut != cuts.end() && *cut < offset + size; ++cut)
    made.emplace_back(begin, *cut - begin), begin = *cut;
  made.emplace_back(begin, offset + size - begin);
  return made;
}

// Calls `visit` for the parts of a box between the cuts of each dimension.
template <class Visit>
void for_each_part(const std::vector<std::vector<std::int64_t>>& cuts, const box& whole, const Visit& visit) {
  if (cuts.empty()) return visit(whole);
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> parts;
  for (std::size_t d = 0; d < whole.rank(); ++d)
    parts.push_back(parts_between(cuts[d], whole.offsets[d], whole.sizes[d]));
  std::vector<std::size_t> chosen(whole.rank(), 0);
  while (true) {
    box part = whole;
    for (std::size_t d = 0; d < whole.rank(); ++d)
      part.offsets[d] = parts[d][chosen[d]].first, part.sizes[d] = parts[d][chosen[d]].second;
    visit(part);
    std::size_t d = whole.rank();
    while (d > 0 && ++chosen[d - 1] == parts[d - 1].size()) chosen[--d] = 0;
    if (d == 0) return;
  }
}

// Numbers the boxes of one rank. Equal boxes have one number.
class box_numbers_of_rank {
 public:
  // Returns the box's number, and whether the box is new.
  std::pair<std::int32_t, bool> number(const box& one) {
    const auto [found, is_new] = numbers_.emplace(one, static_cast<std::int32_t>(numbers_.size()));
    return {found->second, is_new};
  }

 private:
  std::map<box, std::int32_t> numbers_;
};

std::vector<std::vector<std::int64_t>> cuts_of(const index_piece& piece, const piece_space& space,
                                               const distribution& target) {
  std::vector<std::set<std::int64_t>> found(space.shape.rank());
  target.for_each_owner([&](owner_id owner) {
    for_each_box(piece, target, owner, [&](const fragment&, const std::vector<loop_range>& ranges) {
      const box one = target_box_of(space, ranges);
      for (std::size_t d = 0; d < one.rank(); ++d) found[d].insert({one.offsets[d], one.end(d)});
    });
  });
  std::vector<std::vector<std::int64_t>> made;
  for (const auto& cuts : found) made.emplace_back(cuts.begin(), cuts.end());
  return made;
}

}  // namespace

piece_space space_of(const index_piece& piece) {
  piece_space made;
  std::vector<std::size_t> of_both;
  for (std::size_t l = 0; l < piece.loops.size(); ++l) {
    const index_loop& loop = piece.loops[l];
    if (loop.left.dimension < 0)
      made.copied.push_back(l);
    else
      (loop.right.dimension < 0 ? made.loops : of_both).push_back(l);
  }
  made.repeated = made.loops.size();
  made.loops.insert(made.loops.end(), of_both.begin(), of_both.end());
  for (const std::size_t l : made.loops) made.shape.push_back(piece.loops[l].extent);
  return made;
}

result<distribution> source_side(const index_piece& piece, const distribution& source) {
  const piece_space space = space_of(piece);
  const index_piece exchanged = with_sides_exchanged(piece);
  distribution_builder builder(space.shape, owner_space::ranks, source.reduction(), source.divisor());
  builder.at_least_owners(source.owners());
  source.for_each_owner([&](owner_id owner) {
    std::int32_t slot = 0;
    for_each_box(exchanged, source, owner, [&](const fragment& f, const std::vector<loop_range>& ranges) {
      const box one = box_of(space, ranges);
      builder.add(owner, slot++, one.offsets, one.sizes, {}, f.term);
    });
  });
  return builder.finish();
}

std::vector<const_tensor_view> source_slots(const index_piece& piece, const distribution& source, owner_id rank,
                                            std::span<const const_tensor_view> slots) {
  const piece_space space = space_of(piece);
  std::vector<const_tensor_view> made;
  for_each_box(with_sides_exchanged(piece), source, rank,
               [&](const fragment& f, const std::vector<loop_range>& ranges) {
                 const const_tensor_view& slot = slots[static_cast<std::size_t>(f.slot)];
                 const_tensor_view view{nullptr, slot.type, slot.where, {}, {}};
                 std::int64_t at = origin_in(slot, f, piece.left_origin);
                 for (const std::size_t l : space.loops) {
                   const std::int64_t stride = stride_in(slot, piece.loops[l].left);
                   at += ranges[l].begin * stride;
                   view.sizes.push_back(ranges[l].size);
                   view.strides.push_back(stride);
                 }
                 view.data = slot.data + at * item_bytes(slot.type);
                 made.push_back(view);
               });
  return made;
}

result<target_side> side_of_target(const index_piece& piece, const distribution& target) {
  const piece_space space = space_of(piece);
  target_side made;
  made.is_repeated = !space.copied.empty();
  if (made.is_repeated) made.cuts = cuts_of(piece, space, target);
  distribution_builder builder(space.shape, owner_space::ranks);
  builder.at_least_owners(target.owners());
  std::int64_t divided = 0;
  target.for_each_owner([&](owner_id owner) {
    std::int32_t slot = 0;
    box_numbers_of_rank numbers;
    for_each_box(piece, target, owner, [&](const fragment&, const std::vector<loop_range>& ranges) {
      const box held = target_box_of(space, ranges);
      if (!made.is_repeated) return builder.add(owner, slot++, held.offsets, held.sizes);
      for_each_part(made.cuts, held, [&](const box& part) {
        if (++divided > most_boxes) return;
        if (const auto [number, is_new] = numbers.number(part); is_new)
          builder.add(owner, number, part.offsets, part.sizes);
      });
    });
  });
  if (divided > most_boxes)
    return fail(errc::unsupported, "the ranks divide the repetitions of a tensor into too many boxes")
        .with_values(fmt::format("at most {}", most_boxes), fmt::format("{}", divided))
        .with_hint("choose a layout of the target that cuts between repetitions");
  SHARDMESH_TRY(made.where, builder.finish());
  return made;
}

std::vector<target_place> places_of_target(const index_piece& piece, const target_side& side,
                                           const distribution& target, owner_id rank,
                                           std::span<const tensor_view> slots) {
  const piece_space space = space_of(piece);
  std::vector<target_place> made;
  box_numbers_of_rank numbers;
  std::int32_t next = 0;
  for_each_box(piece, target, rank, [&](const fragment& f, const std::vector<loop_range>& ranges) {
    const tensor_view& slot = slots[static_cast<std::size_t>(f.slot)];
    const std::int64_t origin = origin_in(slot, f, piece.right_origin);
    for_each_part(side.cuts, target_box_of(space, ranges), [&](const box& part) {
      target_place place{side.is_repeated ? numbers.number(part).first : next++, part, {}};
      place.memory = {nullptr, slot.type, slot.where, {}, {}};
      std::int64_t at = origin;
      const auto add = [&](std::size_t l, std::int64_t begin, std::int64_t size) {
        const std::int64_t stride = stride_in(slot, piece.loops[l].right);
        at += begin * stride;
        place.memory.sizes.push_back(size);
        place.memory.strides.push_back(stride);
      };
      for (std::size_t d = 0; d < space.loops.size(); ++d)
        add(space.loops[d], part.offsets[d], d < space.repeated ? 1 : part.sizes[d]);
      for (const std::size_t l : space.copied) add(l, ranges[l].begin, ranges[l].size);
      place.memory.data = slot.data + at * item_bytes(slot.type);
      made.push_back(std::move(place));
    });
  });
  return made;
}

box element_of_target(const index_piece& piece, const extents& index) {
  const piece_space space = space_of(piece);
  box made{piece.right_origin, extents::filled(piece.right_origin.rank(), 1)};
  for (std::size_t d = space.repeated; d < space.loops.size(); ++d) {
    const index_loop::step& step = piece.loops[space.loops[d]].right;
    made.offsets[static_cast<std::size_t>(step.dimension)] += index[d] * step.stride;
  }
  return made;
}

}  // namespace shardmesh
