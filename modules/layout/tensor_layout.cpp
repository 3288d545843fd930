// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

// The error of segments that cannot cut their dimension.
error segment_refusal(const layout_problem& problem, const placement& p, const extents& shape) {
  if (problem.fault == layout_fault::wrong_number_of_segments)
    return fail(errc::invalid_argument, fmt::format("placement {} of mesh dimension {} has a wrong number of segments",
                                                    to_string(p), problem.at))
        .with_values(fmt::format("1 to {}", placement::max_segments),
                     p.segment_count > placement::max_segments ? "more" : std::to_string(p.segment_count));
  if (problem.fault == layout_fault::negative_segment)
    return fail(errc::invalid_argument, fmt::format("placement {} of mesh dimension {} has a segment of negative size",
                                                    to_string(p), problem.at));
  const std::size_t dim = detail::resolved_dim(p, shape.rank());
  const auto sum = p.segments_end();
  return fail(errc::invalid_argument,
              fmt::format("the segments of placement {} do not add up to the size of dimension {}", to_string(p), dim))
      .with_values(std::to_string(shape[dim]), sum ? std::to_string(*sum) : "a sum that does not fit in 64 bits")
      .with_hint("give the size of each tensor that was fused into the dimension");
}

// Converts a problem to an error. `device_mesh::make` reports problems of the mesh alone.
error refusal(const layout_problem& problem, const device_mesh& mesh, std::span<const placement> placements,
              const extents& shape, std::span<const split_rule> rules) {
  const std::size_t m = problem.at;
  switch (problem.fault) {
    case layout_fault::wrong_number_of_placements:
      return fail(errc::invalid_argument,
                  fmt::format("the mesh has {}, but {} given", detail::counted(mesh.rank(), "dimension"),
                              detail::counted(placements.size(), "placement is", "placements are")));
    case layout_fault::wrong_number_of_rules:
      return fail(errc::invalid_argument,
                  fmt::format("the mesh has {}, but {} given", detail::counted(mesh.rank(), "dimension"),
                              detail::counted(rules.size(), "split rule is", "split rules are")));
    case layout_fault::missing_dimension:
      return fail(
          errc::out_of_bounds,
          fmt::format("placement {} of mesh dimension {} names a dimension that a tensor of {} dimension{} lacks",
                      to_string(placements[m]), m, shape.rank(), shape.rank() == 1 ? "" : "s"));
    case layout_fault::split_factor_below_one:
      return fail(errc::invalid_argument,
                  fmt::format("placement {} has a split factor below 1", to_string(placements[m])));
    case layout_fault::wrong_number_of_segments:
    case layout_fault::negative_segment:
    case layout_fault::segments_do_not_add_up:
      return segment_refusal(problem, placements[m], shape);
    case layout_fault::missing_reduction:
      return fail(errc::invalid_argument, "a partial placement needs a reduction");
    case layout_fault::mixed_reductions:
      return fail(errc::mixed_partial,
                  fmt::format("reductions {} and {} cannot be combined",
                              to_string(detail::combine_terms(mesh.sizes(), placements.first(m)).reduction),
                              to_string(placements[m].reduction)));
    case layout_fault::listed_rule_of_strided:
      return fail(errc::invalid_argument, fmt::format("split rule {} cannot cut a strided shard", to_string(rules[m])));
    case layout_fault::sizes_of_segments:
      return fail(errc::invalid_argument, fmt::format("split rule {} cannot cut the segments of placement {}",
                                                      to_string(rules[m]), to_string(placements[m])))
          .with_hint("cut segments by torch_chunk, balanced, or weights");
    case layout_fault::rule_does_not_fit: {
      const std::size_t dim = detail::resolved_dim(placements[m], shape.rank());
      return fail(errc::invalid_argument,
                  fmt::format("split rule {} does not cut dimension {}, of {} indices, into {} parts",
                              to_string(rules[m]), dim, shape[dim], mesh.sizes()[m]));
    }
    default:
      return fail(errc::invalid_argument, fmt::format("placement {} gives a rank more than {} boxes",
                                                      to_string(placements[m]), max_boxes_of_a_rank));
  }
}

}  // namespace

layout::layout() : description_(std::make_shared<const description>()) {}

result<layout> layout::make(device_mesh mesh, std::vector<placement> placements, const extents& shape,
                            const split_rule& rule) {
  const std::vector<split_rule> rules(placements.size(), rule);
  return make(std::move(mesh), std::move(placements), shape, rules);
}

result<layout> layout::make(device_mesh mesh, std::vector<placement> placements, const extents& shape,
                            std::span<const split_rule> rules) {
  SHARDMESH_TRY(check_shape(shape));
  if (const auto problem = find_layout_problem(mesh.sizes(), shape, placements, rules))
    return refusal(problem, mesh, placements, shape, rules);
  for (placement& p : placements)
    if (p.is_shard()) p.dim = static_cast<std::int32_t>(detail::resolved_dim(p, shape.rank()));

  auto d = std::make_shared<description>();
  d->mesh = std::move(mesh);
  d->placements = std::move(placements);
  d->shape = shape;
  d->rules.assign(rules.begin(), rules.end());
  d->cuts.resize(shape.rank());
  for (std::size_t m = 0; m < d->placements.size(); ++m) {
    const placement& p = d->placements[m];
    if (p.is_shard())
      d->cuts[static_cast<std::size_t>(p.dim)].push_back({m, detail::cut_of(p, d->mesh.sizes()[m], d->rules[m])});
  }
  const detail::combined_terms terms = detail::combine_terms(d->mesh.sizes(), d->placements);
  d->reduction = terms.reduction;
  d->divisor = terms.divisor;
  d->terms = terms.terms;
  layout made;
  made.description_ = std::move(d);
  return made;
}

const device_mesh& layout::mesh() const {
  return description_->mesh;
}
const std::vector<placement>& layout::placements() const {
  return description_->placements;
}
const extents& layout::shape() const {
  return description_->shape;
}
const std::vector<split_rule>& layout::rules() const {
  return description_->rules;
}
reduce_op layout::reduction() const {
  return description_->reduction;
}
std::int64_t layout::divisor() const {
  return description_->divisor;
}

std::vector<index_run> layout::description::runs(const extents& coordinate, std::size_t dim) const {
  auto held = whole_dimension(shape[dim]);
  for (const mesh_cut& c : cuts[dim]) held = cut_runs(held, c.cut, coordinate[c.mesh_dim]);
  return held;
}

std::vector<index_run> layout::runs(std::int32_t rank, std::size_t dim) const {
  return description_->runs(*description_->mesh.coordinate_of(rank), dim);
}

extents layout::local_shape(std::int32_t rank) const {
  extents sizes = shape();
  for (std::size_t d = 0; d < sizes.rank(); ++d) sizes[d] = length_of(runs(rank, d));
  return sizes;
}

extents layout::first_index(std::int32_t rank) const {
  extents first = shape();
  for (std::size_t d = 0; d < first.rank(); ++d) {
    const auto held = runs(rank, d);
    if (!held.empty()) first[d] = held.front().global;
  }
  return first;
}

std::vector<placed_box> layout::boxes(std::int32_t rank) const {
  std::vector<placed_box> made;
  const auto coordinate = mesh().coordinate_of(rank);
  if (!coordinate) return made;
  std::vector<std::vector<index_run>> held(shape().rank());
  for (std::size_t d = 0; d < held.size(); ++d) held[d] = description_->runs(*coordinate, d);
  for_each_box(held, [&](const box& where, const extents& local) {
    made.push_back({where, local});
    return true;
  });
  return made;
}

bool operator==(const layout& a, const layout& b) {
  return a.description_ == b.description_ ||
         (a.mesh() == b.mesh() && a.placements() == b.placements() && a.shape() == b.shape() && a.rules() == b.rules());
}

std::string to_string(const layout& l) {
  return fmt::format("{} on {} as {}", to_string(l.shape()), to_string(l.mesh()), to_string(l.placements()));
}

}  // namespace shardmesh
