// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <try.hpp>
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

result<void> resolve_dims(std::vector<placement>& placements, std::size_t rank) {
  for (std::size_t m = 0; m < placements.size(); ++m) {
    placement& p = placements[m];
    if (!p.is_shard()) continue;
    const auto dims = static_cast<std::int32_t>(rank);
    if (p.dim >= dims || p.dim < -dims)
      return fail(
          errc::out_of_bounds,
          fmt::format("placement {} of mesh dimension {} names a dimension that a tensor of {} dimension{} lacks",
                      to_string(p), m, rank, rank == 1 ? "" : "s"));
    if (p.dim < 0) p.dim += dims;
    if (p.split_factor < 1)
      return fail(errc::invalid_argument, fmt::format("placement {} has a split factor below 1", to_string(p)));
  }
  return {};
}

// The one reduction of all partial dimensions: sum and avg go together (an average of sums), nothing else mixes.
result<void> combine_partials(layout::description& d) {
  for (std::size_t m = 0; m < d.placements.size(); ++m) {
    if (d.placements[m].kind != placement_kind::partial) continue;
    const reduce_op op = d.placements[m].reduction;
    if (op == reduce_op::none) return fail(errc::invalid_argument, "a partial placement needs a reduction");
    if (d.reduction != reduce_op::none && !are_combinable(d.reduction, op))
      return fail(errc::mixed_partial,
                  fmt::format("reductions {} and {} cannot be combined", to_string(d.reduction), to_string(op)));
    if (d.reduction == reduce_op::none || op == reduce_op::avg) d.reduction = op;
    if (op == reduce_op::avg) d.divisor *= d.mesh.sizes()[m];
    d.terms *= d.mesh.sizes()[m];
  }
  return {};
}

result<void> check_rules(const layout::description& d) {
  std::int64_t boxes = 1;
  for (std::size_t dim = 0; dim < d.shape.rank(); ++dim) {
    bool first = true;
    for (const mesh_cut& c : d.cuts[dim]) {
      const split_policy policy = c.cut.rule.policy();
      const bool listed = policy == split_policy::explicit_sizes || policy == split_policy::weighted;
      if (listed && c.cut.pieces != 1)
        return fail(errc::invalid_argument,
                    fmt::format("split rule {} cannot cut a strided shard", to_string(c.cut.rule)));
      if ((policy == split_policy::explicit_sizes && !first) || !c.cut.rule.fits(d.shape[dim], c.cut.parts))
        return fail(errc::invalid_argument,
                    fmt::format("split rule {} does not cut dimension {}, of {} indices, into {} parts",
                                to_string(c.cut.rule), dim, d.shape[dim], c.cut.parts));
      first = false;
      if (c.cut.parts == 1 || c.cut.pieces >= d.shape[dim]) continue;
      const auto more = checked_multiply(boxes, c.cut.pieces);
      if (!more || *more > max_boxes_of_a_rank)
        return fail(errc::invalid_argument,
                    fmt::format("split factor {} gives a rank more than {} boxes", c.cut.pieces, max_boxes_of_a_rank));
      boxes = *more;
    }
  }
  return {};
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
  SHARDMESH_CHECK(check_shape(shape));
  if (placements.size() != mesh.rank())
    return fail(errc::invalid_argument,
                fmt::format("{} placement{} for a mesh of {} dimension{}", placements.size(),
                            placements.size() == 1 ? "" : "s", mesh.rank(), mesh.rank() == 1 ? "" : "s"));
  if (rules.size() != mesh.rank())
    return fail(errc::invalid_argument,
                fmt::format("{} split rules for a mesh of {} dimensions", rules.size(), mesh.rank()));
  SHARDMESH_CHECK(resolve_dims(placements, shape.rank()));

  auto d = std::make_shared<description>();
  d->mesh = std::move(mesh);
  d->placements = std::move(placements);
  d->shape = shape;
  d->rules.assign(rules.begin(), rules.end());
  d->cuts.resize(shape.rank());
  for (std::size_t m = 0; m < d->placements.size(); ++m) {
    const placement& p = d->placements[m];
    if (p.is_shard())
      d->cuts[static_cast<std::size_t>(p.dim)].push_back({m, {d->mesh.sizes()[m], p.split_factor, d->rules[m]}});
  }
  SHARDMESH_CHECK(combine_partials(*d));
  SHARDMESH_CHECK(check_rules(*d));
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
