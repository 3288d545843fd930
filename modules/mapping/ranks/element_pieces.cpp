// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :element_pieces;

namespace shardmesh {
namespace {

bool is_empty(const std::vector<index_loop>& loops) {
  return std::any_of(loops.begin(), loops.end(), [](const index_loop& loop) { return loop.extent == 0; });
}

extents behind(const extents& all, std::size_t leading) {
  extents made;
  for (std::size_t d = leading; d < all.rank(); ++d) made.push_back(all[d]);
  return made;
}

void lower(index_loop::step& step, std::size_t leading) {
  if (step.dimension >= 0) step.dimension -= static_cast<std::int32_t>(leading);
}

// Adds the pieces that one tensor of a stacked target shares with the single tensors of a stacked source.
class piece_separator {
 public:
  piece_separator(const bound_mapping& bound, const bound_tensor& tensor, value_stages values,
                  std::vector<element_piece>& to)
      : instance_(bound.instances[tensor.instance]),
        relation_(bound.relations[instance_.relation]),
        tensor_(tensor),
        values_(std::move(values)),
        to_(to) {}

  void add(const index_piece& piece) {
    if (is_empty(piece.loops)) return;
    std::optional<index_piece> chosen = piece_within(piece, tensor_.stacked);
    if (!chosen) return;
    const std::size_t stacked = relation_.left_stacked[piece.left_tensor];
    std::vector<index_loop> over, rest;  // the members of the source, and the elements of each
    for (const index_loop& loop : chosen->loops) {
      const bool is_member = loop.left.dimension >= 0 && static_cast<std::size_t>(loop.left.dimension) < stacked;
      (is_member ? over : rest).push_back(loop);
    }
    chosen->loops = std::move(rest);
    add_members(*std::move(chosen), over, 0, stacked);
  }

  void add(const index_filler& filler) {
    if (is_empty(filler.loops)) return;
    std::optional<index_piece> chosen = piece_within({0, 0, {}, filler.origin, filler.loops}, tensor_.stacked);
    if (chosen) keep(*std::move(chosen), no_source, 0, {});
  }

 private:
  void add_members(index_piece here, const std::vector<index_loop>& over, std::size_t loop, std::size_t stacked) {
    if (loop < over.size()) {
      const auto& [extent, left, right] = over[loop];
      for (std::int64_t i = 0; i < extent; ++i) {
        add_members(here, over, loop + 1, stacked);
        here.left_origin[static_cast<std::size_t>(left.dimension)] += left.stride;
        if (right.dimension >= 0) here.right_origin[static_cast<std::size_t>(right.dimension)] += right.stride;
      }
      return;
    }
    const extents& shape = relation_.relation.left[here.left_tensor].shape;
    std::int64_t number = 0;
    for (std::size_t d = 0; d < stacked; ++d) number = number * shape[d] + here.left_origin[d];
    const std::size_t first = instance_.first_source[here.left_tensor];
    const std::size_t source = instance_.sources[first + static_cast<std::size_t>(number)];
    keep(std::move(here), source, stacked, values_);
  }

  void keep(index_piece piece, std::size_t source, std::size_t left_stacked, value_stages values) {
    piece.left_origin = behind(piece.left_origin, left_stacked);
    piece.right_origin = behind(piece.right_origin, tensor_.stacked.rank());
    for (index_loop& loop : piece.loops) {
      lower(loop.left, left_stacked);
      lower(loop.right, tensor_.stacked.rank());
    }
    piece.left_tensor = piece.right_tensor = 0;
    piece.loops = joined_loops(std::move(piece.loops));
    to_.push_back({source, std::move(piece), std::move(values)});
  }

  const bound_instance& instance_;
  const bound_relation& relation_;
  const bound_tensor& tensor_;
  value_stages values_;
  std::vector<element_piece>& to_;
};

}  // namespace

std::vector<index_loop> joined_loops(std::vector<index_loop> loops) {
  const auto continues = [](const index_loop::step& outer, const index_loop::step& inner, std::int64_t extent) {
    return outer.dimension >= 0 && outer.dimension == inner.dimension && outer.stride == inner.stride * extent;
  };
  for (bool is_done = false; !is_done;) {
    is_done = true;
    for (std::size_t outer = 0; outer < loops.size() && is_done; ++outer)
      for (std::size_t inner = 0; inner < loops.size() && is_done; ++inner) {
        index_loop& kept = loops[inner];
        if (outer == inner || !continues(loops[outer].left, kept.left, kept.extent) ||
            !continues(loops[outer].right, kept.right, kept.extent))
          continue;
        kept.extent *= loops[outer].extent;
        loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(outer));
        is_done = false;
      }
  }
  return loops;
}

std::optional<index_piece> piece_within(const index_piece& piece, const extents& stacked) {
  const auto is_stacked = [&](const index_loop& loop) {
    return loop.right.dimension >= 0 && static_cast<std::size_t>(loop.right.dimension) < stacked.rank();
  };
  index_piece made = piece;
  made.loops.clear();
  std::vector<index_loop> over;
  for (const index_loop& loop : piece.loops) (is_stacked(loop) ? over : made.loops).push_back(loop);
  std::sort(over.begin(), over.end(),
            [](const index_loop& a, const index_loop& b) { return a.right.stride > b.right.stride; });
  for (const index_loop& loop : over) {
    const auto d = static_cast<std::size_t>(loop.right.dimension);
    const std::int64_t step = (stacked[d] - made.right_origin[d]) / loop.right.stride;
    if (step < 0 || step >= loop.extent) return std::nullopt;
    made.right_origin[d] += step * loop.right.stride;
    if (loop.left.dimension >= 0)
      made.left_origin[static_cast<std::size_t>(loop.left.dimension)] += step * loop.left.stride;
  }
  for (std::size_t d = 0; d < stacked.rank(); ++d)
    if (made.right_origin[d] != stacked[d]) return std::nullopt;
  return made;
}

std::vector<target_elements> elements_of(const bound_mapping& bound, const catalog& source) {
  std::vector<target_elements> all;
  all.reserve(bound.tensors.size() + bound.kept.size());
  for (const bound_tensor& tensor : bound.tensors) {
    const bound_instance& instance = bound.instances[tensor.instance];
    const mapping_rule& rule = bound.rule_of(instance);
    target_elements made{tensor.key, tensor.type, tensor.shape, {}, {}, {}, {}};
    value_stages values;
    if (instance.form == bound_form::rule && !rule.values.empty()) values.push_back(rule.values);
    if (instance.form == bound_form::scalar || rule.index.is_rename()) {
      made.whole = instance.sources[0];
      made.values = std::move(values);
      if (instance.form == bound_form::scalar) made.equals.assign(instance.sources.begin() + 1, instance.sources.end());
    } else {
      const index_relation& relation = bound.relations[instance.relation].relation;
      piece_separator separator(bound, tensor, std::move(values), made.pieces);
      for (const index_piece& piece : relation.pieces)
        if (piece.right_tensor == tensor.tensor) separator.add(piece);
      for (const index_filler& filler : relation.right[tensor.tensor].fillers) separator.add(filler);
    }
    all.push_back(std::move(made));
  }
  for (const std::size_t kept : bound.kept) {
    const tensor_entry& entry = source.tensors[kept];
    all.push_back({entry.key, entry.type, entry.shape, kept, {}, {}, {}});
  }
  return all;
}

std::vector<target_elements> elements_of(const catalog& source) {
  std::vector<target_elements> all;
  all.reserve(source.tensors.size());
  for (std::size_t i = 0; i < source.tensors.size(); ++i) {
    const tensor_entry& entry = source.tensors[i];
    all.push_back({entry.key, entry.type, entry.shape, i, {}, {}, {}});
  }
  return all;
}

tensor_entry entry_of(const std::string& key, dtype type, const extents& shape) {
  tensor_entry made;
  made.key = key;
  made.where = {key};
  made.type = type;
  made.shape = shape;
  return made;
}

catalog catalog_of(std::span<const target_elements> targets) {
  catalog made;
  made.tensors.reserve(targets.size());
  for (const target_elements& one : targets) made.tensors.push_back(entry_of(one.key, one.type, one.shape));
  return made;
}

}  // namespace shardmesh
