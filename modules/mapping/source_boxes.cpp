// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :element_pieces;

namespace shardmesh {
namespace {

// Lists the boxes of one piece. Loops that move by one element on both sides are dimensions of the boxes, and each step
// of the others makes a box of its own.
class piece_boxes {
 public:
  piece_boxes(const bound_mapping& bound, const bound_tensor& tensor, const index_piece& piece)
      : instance_(bound.instances[tensor.instance]),
        relation_(bound.relations[instance_.relation]),
        tensor_(tensor),
        piece_(piece),
        left_stacked_(relation_.left_stacked[piece.left_tensor]),
        left_(piece.left_origin),
        right_(piece.right_origin) {}

  void add_to(source_box_list& list, std::size_t most) {
    const bool is_empty =
        std::any_of(piece_.loops.begin(), piece_.loops.end(), [](const index_loop& loop) { return loop.extent == 0; });
    if (is_empty || !choose_stack()) return;
    divide();
    std::int64_t count = 1;
    for (const index_loop& loop : steps_) count = checked_multiply(count, loop.extent).value_or(most_boxes);
    const auto room = static_cast<std::int64_t>(most - std::min(most, list.boxes.size()));
    const std::int64_t listed = std::min(count, room);
    std::vector<std::int64_t> index(steps_.size(), 0);
    for (std::int64_t i = 0; i < listed; ++i) {
      list.boxes.push_back(box_at(index));
      std::size_t s = index.size();
      while (s > 0 && ++index[s - 1] == steps_[s - 1].extent) index[--s] = 0;
    }
    list.more = list.more > most_boxes - (count - listed) ? most_boxes : list.more + count - listed;
  }

 private:
  static constexpr std::int64_t most_boxes = std::numeric_limits<std::int64_t>::max();

  // Moves the origins to the tensor's index in the leading dimensions, which stand for captures. Returns false if the
  // piece is not in the tensor.
  bool choose_stack() {
    std::optional<index_piece> chosen = piece_within(piece_, tensor_.stacked);
    if (!chosen) return false;
    left_ = chosen->left_origin;
    right_ = chosen->right_origin;
    loops_ = joined_loops(std::move(chosen->loops));
    return true;
  }

  void divide() {
    for (const index_loop& loop : loops_) {
      const bool is_run = loop.left.dimension >= static_cast<std::int64_t>(left_stacked_) && loop.left.stride == 1 &&
                          loop.right.dimension >= 0 && loop.right.stride == 1;
      (is_run ? runs_ : steps_).push_back(loop);
    }
    // In the order of the target's elements; repetitions, which do not move there, are innermost.
    const auto place = [](const index_loop& loop) {
      const std::int64_t dimension = loop.right.dimension < 0 ? most_boxes : loop.right.dimension;
      return std::pair(dimension, -loop.right.stride);
    };
    std::sort(steps_.begin(), steps_.end(),
              [&](const index_loop& a, const index_loop& b) { return place(a) < place(b); });
  }

  source_box box_at(const std::vector<std::int64_t>& index) const {
    extents left = left_, right = right_;
    const auto move = [](extents& position, const index_loop::step& step, std::int64_t count) {
      if (step.dimension >= 0) position[static_cast<std::size_t>(step.dimension)] += count * step.stride;
    };
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      move(left, steps_[s].left, index[s]);
      move(right, steps_[s].right, index[s]);
    }
    extents left_sizes = extents::filled(left.rank(), 1), right_sizes = extents::filled(right.rank(), 1);
    for (const index_loop& run : runs_) {
      left_sizes[static_cast<std::size_t>(run.left.dimension)] = run.extent;
      right_sizes[static_cast<std::size_t>(run.right.dimension)] = run.extent;
    }
    const extents& shape = relation_.relation.left[piece_.left_tensor].shape;
    std::int64_t number = 0;
    for (std::size_t d = 0; d < left_stacked_; ++d) number = number * shape[d] + left[d];
    const std::size_t source =
        instance_.sources[instance_.first_source[piece_.left_tensor] + static_cast<std::size_t>(number)];
    return {behind(right, right_sizes, tensor_.stacked.rank()), source, behind(left, left_sizes, left_stacked_)};
  }

  // The box without its leading dimensions.
  static box behind(const extents& offsets, const extents& sizes, std::size_t leading) {
    box made;
    for (std::size_t d = leading; d < offsets.rank(); ++d) {
      made.offsets.push_back(offsets[d]);
      made.sizes.push_back(sizes[d]);
    }
    return made;
  }

  const bound_instance& instance_;
  const bound_relation& relation_;
  const bound_tensor& tensor_;
  const index_piece& piece_;
  std::size_t left_stacked_;
  extents left_, right_;  // the position of the first element
  std::vector<index_loop> loops_, runs_, steps_;
};

}  // namespace

source_box_list source_boxes_of(const bound_mapping& bound, const bound_tensor& tensor, std::size_t most) {
  source_box_list list;
  if (box::whole(tensor.shape).is_empty()) return list;
  const bound_instance& instance = bound.instances[tensor.instance];
  if (instance.form == bound_form::scalar || bound.rule_of(instance).index.is_rename()) {
    for (const std::size_t source : instance.sources) {
      if (list.boxes.size() < most)
        list.boxes.push_back({box::whole(tensor.shape), source, box::whole(tensor.shape)});
      else
        ++list.more;
    }
    return list;
  }
  for (const index_piece& piece : bound.relations[instance.relation].relation.pieces)
    if (piece.right_tensor == tensor.tensor) piece_boxes(bound, tensor, piece).add_to(list, most);
  return list;
}

}  // namespace shardmesh
