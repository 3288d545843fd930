// SPDX-License-Identifier: Apache-2.0
// The rules for a layout's mesh, shape, and placements, and the terms that they yield. `layout::make` and
// `static_layout` share them, so both refuse the same arguments. The error texts are in `tensor_layout.cpp`.
export module shardmesh.layout:layout_rules;

import shardmesh.std;
import shardmesh.core;
import :cut;
import :placement;
import :split_rule;

export namespace shardmesh {

/// A rule that a layout's arguments break.
enum class layout_fault : std::uint8_t {
  none,
  too_many_mesh_dimensions,    // more than `max_rank`
  empty_mesh_dimension,        // a size below 1
  too_many_ranks,              // more than 2^31 - 1
  too_many_dimensions,         // the tensor has more than `max_rank` dimensions
  negative_size,               // a size of the tensor is below 0
  too_many_elements,           // the number of elements does not fit in 64 bits
  wrong_number_of_placements,  // not one placement per mesh dimension
  wrong_number_of_rules,       // not one rule per mesh dimension
  missing_dimension,           // a shard of a dimension that the tensor lacks
  split_factor_below_one,
  wrong_number_of_segments,  // none, or more than `placement::max_segments`
  negative_segment,
  segments_do_not_add_up,   // to the size of the dimension
  missing_reduction,        // a partial placement without a reduction
  mixed_reductions,         // reductions that cannot be combined
  listed_rule_of_strided,   // explicit sizes or weights cannot cut a strided shard
  sizes_of_segments,        // explicit sizes cannot cut segments, which differ in length
  rule_does_not_fit,        // the rule does not cut this dimension into that many parts
  too_many_boxes_of_a_rank  // more than `max_boxes_of_a_rank`
};

/// The first broken rule and its place: a mesh dimension, or a tensor dimension for faults of the shape.
struct layout_problem {
  layout_fault fault = layout_fault::none;
  std::size_t at = 0;
  constexpr explicit operator bool() const { return fault != layout_fault::none; }
  friend constexpr bool operator==(const layout_problem&, const layout_problem&) = default;
};

/// Returns the first rule that the sizes of a mesh break. Cost: O(mesh dimensions).
constexpr layout_problem find_mesh_problem(std::span<const std::int64_t> sizes) {
  if (sizes.size() > max_rank) return {layout_fault::too_many_mesh_dimensions};
  for (std::size_t m = 0; m < sizes.size(); ++m)
    if (sizes[m] < 1) return {layout_fault::empty_mesh_dimension, m};
  const auto ranks = checked_volume(sizes);
  if (!ranks || *ranks > std::numeric_limits<std::int32_t>::max()) return {layout_fault::too_many_ranks};
  return {};
}

/// Returns the first rule that the sizes of a tensor break. Cost: O(tensor dimensions).
constexpr layout_problem find_shape_problem(std::span<const std::int64_t> shape) {
  if (shape.size() > max_rank) return {layout_fault::too_many_dimensions};
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] < 0) return {layout_fault::negative_size, d};
  if (!checked_volume(shape)) return {layout_fault::too_many_elements};
  return {};
}

}  // namespace shardmesh

namespace shardmesh::detail {

// The tensor dimension that a placement names, converted to a non-negative number.
constexpr std::size_t resolved_dim(const placement& p, std::size_t rank) {
  return static_cast<std::size_t>(p.dim < 0 ? p.dim + static_cast<std::int64_t>(rank) : p.dim);
}

// The combination of the terms on all partial mesh dimensions.
struct combined_terms {
  reduce_op reduction = reduce_op::none;
  std::int64_t divisor = 1;  // number of ranks over which `avg` dimensions average
  std::int64_t terms = 1;
};
constexpr combined_terms combine_terms(std::span<const std::int64_t> mesh, std::span<const placement> placements) {
  combined_terms made;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].kind != placement_kind::partial) continue;
    const reduce_op op = placements[m].reduction;
    if (made.reduction == reduce_op::none || op == reduce_op::avg) made.reduction = op;
    if (op == reduce_op::avg) made.divisor *= mesh[m];
    made.terms *= mesh[m];
  }
  return made;
}

// Returns the number of the term at a coordinate: row-major over the partial mesh dimensions.
constexpr std::int32_t term_at(std::span<const std::int64_t> mesh, std::span<const placement> placements,
                               const extents& coordinate) {
  std::int64_t term = 0;
  for (std::size_t m = 0; m < placements.size(); ++m)
    if (placements[m].kind == placement_kind::partial) term = term * mesh[m] + coordinate[m];
  return static_cast<std::int32_t>(term);
}

constexpr layout_problem find_dim_problem(std::span<const placement> placements, std::size_t rank) {
  for (std::size_t m = 0; m < placements.size(); ++m) {
    const placement& p = placements[m];
    if (!p.is_shard()) continue;
    const auto dims = static_cast<std::int32_t>(rank);
    if (p.dim >= dims || p.dim < -dims) return {layout_fault::missing_dimension, m};
    if (p.split_factor < 1) return {layout_fault::split_factor_below_one, m};
  }
  return {};
}

// Precondition: every placement names a dimension of the shape.
constexpr layout_problem find_segment_problem(std::span<const placement> placements,
                                              std::span<const std::int64_t> shape) {
  for (std::size_t m = 0; m < placements.size(); ++m) {
    const placement& p = placements[m];
    if (p.kind != placement_kind::shard_segments) continue;
    if (p.segment_count < 1 || p.segment_count > placement::max_segments)
      return {layout_fault::wrong_number_of_segments, m};
    for (const std::int64_t size : p.segments())
      if (size < 0) return {layout_fault::negative_segment, m};
    const auto sum = p.segments_end();
    if (!sum || *sum != shape[resolved_dim(p, shape.size())]) return {layout_fault::segments_do_not_add_up, m};
  }
  return {};
}

// Requires one reduction on all partial dimensions; only sum and avg combine (an average of sums).
constexpr layout_problem find_reduction_problem(std::span<const placement> placements) {
  reduce_op all = reduce_op::none;
  for (std::size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].kind != placement_kind::partial) continue;
    const reduce_op op = placements[m].reduction;
    if (op == reduce_op::none) return {layout_fault::missing_reduction, m};
    if (all != reduce_op::none && !are_combinable(all, op)) return {layout_fault::mixed_reductions, m};
    if (all == reduce_op::none || op == reduce_op::avg) all = op;
  }
  return {};
}

// The cut that a placement makes on a mesh dimension of `parts` ranks. Precondition: it is a shard.
constexpr dimension_cut cut_of(const placement& p, std::int64_t parts, const split_rule& rule) {
  const auto segments = p.segments();
  const std::int64_t pieces = segments.empty() ? p.split_factor : 1;
  return {parts, pieces, rule, std::vector<std::int64_t>(segments.data(), segments.data() + segments.size())};
}

// The most boxes into which a placement cuts each box of a dimension of this length.
constexpr std::int64_t boxes_per_box(const placement& p, std::int64_t length) {
  if (p.kind == placement_kind::shard_segments) return p.segment_count;
  return p.split_factor >= length ? 1 : p.split_factor;
}

// Empty `rules` mean torch_chunk everywhere. Precondition: the other checks have passed.
constexpr layout_problem find_cut_problem(std::span<const std::int64_t> mesh, std::span<const std::int64_t> shape,
                                          std::span<const placement> placements, std::span<const split_rule> rules) {
  std::int64_t boxes = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    bool first = true;
    for (std::size_t m = 0; m < mesh.size(); ++m) {
      const placement& p = placements[m];
      if (!p.is_shard() || resolved_dim(p, shape.size()) != d) continue;
      if (!rules.empty()) {
        const split_policy policy = rules[m].policy();
        const bool listed = policy == split_policy::explicit_sizes || policy == split_policy::weighted;
        if (listed && p.split_factor != 1) return {layout_fault::listed_rule_of_strided, m};
        if (policy == split_policy::explicit_sizes && p.kind == placement_kind::shard_segments)
          return {layout_fault::sizes_of_segments, m};
        if ((policy == split_policy::explicit_sizes && !first) || !rules[m].fits(shape[d], mesh[m]))
          return {layout_fault::rule_does_not_fit, m};
      }
      first = false;
      if (mesh[m] == 1) continue;
      const auto more = checked_multiply(boxes, boxes_per_box(p, shape[d]));
      if (!more || *more > max_boxes_of_a_rank) return {layout_fault::too_many_boxes_of_a_rank, m};
      boxes = *more;
    }
  }
  return {};
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns the first rule that the arguments of a layout break. With no broken rule, `layout::make` accepts the
/// arguments and a `static_layout` of them compiles.
/// \param mesh        sizes of the mesh
/// \param shape       sizes of the tensor
/// \param placements  one per mesh dimension
/// \param rules       one per mesh dimension; nothing: torch_chunk
/// Cost: O(mesh dimensions * tensor dimensions).
constexpr layout_problem find_layout_problem(std::span<const std::int64_t> mesh, std::span<const std::int64_t> shape,
                                             std::span<const placement> placements,
                                             std::optional<std::span<const split_rule>> rules = std::nullopt) {
  if (const auto problem = find_mesh_problem(mesh)) return problem;
  if (const auto problem = find_shape_problem(shape)) return problem;
  if (placements.size() != mesh.size()) return {layout_fault::wrong_number_of_placements};
  if (rules && rules->size() != mesh.size()) return {layout_fault::wrong_number_of_rules};
  if (const auto problem = detail::find_dim_problem(placements, shape.size())) return problem;
  if (const auto problem = detail::find_segment_problem(placements, shape)) return problem;
  if (const auto problem = detail::find_reduction_problem(placements)) return problem;
  return detail::find_cut_problem(mesh, shape, placements, rules.value_or(std::span<const split_rule>()));
}

}  // namespace shardmesh
