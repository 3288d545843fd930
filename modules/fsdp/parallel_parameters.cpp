// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {

struct parallel_parameters::description {
  device_mesh mesh;
  std::size_t fsdp_dim = 0;
  std::vector<parallel_parameter_info> parameters;
  std::vector<layout> placed;
  std::vector<std::int32_t> column_of;  // for each rank; -1: outside the mesh
  std::vector<std::int32_t> rank_in;    // for each column
  std::vector<flat_parameter> flats;    // for each column
  std::vector<shard_group> groups;      // for each column
  shard_group group, cells;
};

namespace {

result<layout> placed_layout(const device_mesh& mesh, const parallel_parameter_info& p, const parallel_options& o) {
  std::vector<placement> placements = p.placements;
  if (placements.empty()) placements.assign(mesh.rank(), placement::replicate());
  SHARDMESH_TRY(layout made, layout::make(mesh, std::move(placements), p.shape, o.rule));
  if (made.reduction() != reduce_op::none)
    return fail(errc::mixed_partial, "a parameter cannot be Partial")
        .with_values("shards and replicas", to_string(made.placements()));
  if (made.placements()[o.fsdp_dim].kind != placement_kind::replicate)
    return fail(errc::invalid_argument, "the mesh dimension that FSDP cuts along is in use already")
        .with_values("R", to_string(made.placements()[o.fsdp_dim]));
  return made;
}

// Strides of a dense tensor whose dimensions have this memory order; empty: row-major.
result<extents> strides_of(const extents& sizes, const extents& order) {
  if (order.empty()) return contiguous_strides(sizes);
  const bool is_empty = box::whole(sizes).is_empty();
  extents strides = extents::filled(sizes.rank(), -1);
  std::int64_t step = 1;
  for (std::size_t k = order.rank(); k-- > 0;) {
    const auto d = static_cast<std::size_t>(order[k]);
    if (order.rank() != sizes.rank() || order[k] < 0 || d >= sizes.rank() || strides[d] != -1)
      return fail(errc::invalid_argument, "the order of a parameter's dimensions must name each of them once")
          .with_values(fmt::format("0 to {}", static_cast<std::int64_t>(sizes.rank()) - 1), to_string(order));
    strides[d] = step;
    if (!is_empty) step *= sizes[d];  // shapes have been checked; without elements, the product has no meaning
  }
  return strides;
}

error at_parameter(error e, const std::string& fqn) {
  return e.key.empty() ? std::move(e).with_key(fqn) : std::move(e);
}

}  // namespace

parallel_parameters::parallel_parameters() = default;

result<parallel_parameters> parallel_parameters::make(const device_mesh& mesh, std::int32_t ranks,
                                                      std::vector<parallel_parameter_info> parameters,
                                                      std::vector<shared_parameter_info> shared,
                                                      const parallel_options& options) {
  auto made = std::make_shared<description>();
  made->mesh = mesh;
  made->fsdp_dim = options.fsdp_dim;
  SHARDMESH_TRY(made->group, shard_group::along(mesh, options.fsdp_dim, ranks));
  std::vector<bool> cuts(mesh.rank(), false);
  for (const parallel_parameter_info& p : parameters) {
    auto placed = placed_layout(mesh, p, options);
    if (!placed) return at_parameter(std::move(placed).error(), p.fqn);
    for (std::size_t d = 0; d < mesh.rank(); ++d) cuts[d] = cuts[d] || placed->placements()[d].is_shard();
    made->placed.push_back(*std::move(placed));
  }
  // A column is a coordinate on the mesh dimensions that cut any parameter.
  const auto size = static_cast<std::size_t>(ranks);
  made->column_of.assign(size, -1);
  std::vector<std::int32_t> cells(size, -1);
  for (std::int64_t p = 0; p < mesh.size(); ++p) {
    const std::int32_t rank = mesh.rank_of_position(p);
    const extents at = *mesh.coordinate_of(rank);
    std::int32_t column = 0;
    for (std::size_t d = 0; d < mesh.rank(); ++d)
      if (cuts[d]) column = column * static_cast<std::int32_t>(mesh.sizes()[d]) + static_cast<std::int32_t>(at[d]);
    const auto r = static_cast<std::size_t>(rank);
    made->column_of[r] = column;
    cells[r] = column * made->group.size() + *made->group.position(rank);
    if (static_cast<std::size_t>(column) >= made->rank_in.size())
      made->rank_in.resize(static_cast<std::size_t>(column) + 1, rank);
    made->rank_in[static_cast<std::size_t>(column)] = rank;
  }
  SHARDMESH_TRY(made->cells, shard_group::make(std::move(cells)));
  for (std::size_t c = 0; c < made->rank_in.size(); ++c) {
    std::vector<parameter_info> local;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const parallel_parameter_info& p = parameters[i];
      parameter_info info{p.fqn, made->placed[i].local_shape(made->rank_in[c]), {}, p.type, p.requires_grad};
      auto strides = strides_of(info.shape, p.order);
      if (!strides) return at_parameter(std::move(strides).error(), p.fqn);
      info.strides = *strides;
      local.push_back(std::move(info));
    }
    SHARDMESH_TRY(made->flats.emplace_back(),
                  flat_parameter::make(
                      std::move(local), shared,
                      {.group_size = made->group.size(), .alignment = options.alignment, .sharded = options.sharded}));
    std::vector<std::int32_t> positions(size, -1);
    for (std::size_t r = 0; r < size; ++r)
      if (made->column_of[r] == static_cast<std::int32_t>(c))
        positions[r] = *made->group.position(static_cast<std::int32_t>(r));
    SHARDMESH_TRY(made->groups.emplace_back(), shard_group::make(std::move(positions)));
  }
  made->parameters = std::move(parameters);
  parallel_parameters unit;
  unit.description_ = std::move(made);
  return unit;
}

const device_mesh& parallel_parameters::mesh() const {
  return description_->mesh;
}
std::size_t parallel_parameters::fsdp_dim() const {
  return description_->fsdp_dim;
}
std::span<const parallel_parameter_info> parallel_parameters::parameters() const {
  return description_->parameters;
}
const layout& parallel_parameters::placed(std::size_t parameter) const {
  return description_->placed[parameter];
}
result<layout> parallel_parameters::sharded(std::size_t parameter, std::int32_t dim) const {
  return strided_chunk_layout(placed(parameter), fsdp_dim(), dim);
}
std::int32_t parallel_parameters::columns() const {
  return static_cast<std::int32_t>(description_->flats.size());
}
std::optional<std::int32_t> parallel_parameters::column_of(std::int32_t rank) const {
  const auto r = static_cast<std::size_t>(rank);
  if (rank < 0 || r >= description_->column_of.size() || description_->column_of[r] < 0) return std::nullopt;
  return description_->column_of[r];
}
std::int32_t parallel_parameters::rank_in(std::int32_t column) const {
  return description_->rank_in[static_cast<std::size_t>(column)];
}
const flat_parameter& parallel_parameters::flat(std::int32_t column) const {
  return description_->flats[static_cast<std::size_t>(column)];
}
const shard_group& parallel_parameters::group(std::int32_t column) const {
  return description_->groups[static_cast<std::size_t>(column)];
}
const shard_group& parallel_parameters::group() const {
  return description_->group;
}
const shard_group& parallel_parameters::cells() const {
  return description_->cells;
}

result<layout> strided_chunk_layout(const layout& l, std::size_t fsdp_dim, std::int32_t dim) {
  if (fsdp_dim >= l.mesh().rank())
    return fail(errc::out_of_bounds, "the mesh has no such dimension")
        .with_values(fmt::format("a dimension below {}", l.mesh().rank()), std::to_string(fsdp_dim));
  if (l.placements()[fsdp_dim].kind != placement_kind::replicate)
    return fail(errc::invalid_argument, "the mesh dimension that FSDP cuts along is in use already")
        .with_values("R", to_string(l.placements()[fsdp_dim]));
  if (l.shape().rank() == 0) return l;
  const std::int32_t resolved = dim < 0 ? dim + static_cast<std::int32_t>(l.shape().rank()) : dim;
  // Mesh dimensions cut from left to right. Dimensions on the right cut after FSDP's, although tensor parallelism was
  // applied first. So FSDP takes its part of each piece that the dimensions on the right will make.
  std::int64_t pieces = 1;
  for (std::size_t d = fsdp_dim + 1; d < l.mesh().rank(); ++d) {
    const placement& after = l.placements()[d];
    if (!after.is_shard() || after.dim != resolved) continue;
    // The dimensions on the right then hold several boxes each, which no strided shard can cut as one part.
    if (after.kind == placement_kind::shard_segments)
      return fail(errc::unsupported,
                  fmt::format("FSDP on mesh dimension {} cannot cut the segments of placement {} of mesh dimension {}",
                              fsdp_dim, to_string(after), d))
          .with_hint("put FSDP's mesh dimension on the right, or let FSDP cut another dimension of the tensor");
    pieces *= l.mesh().sizes()[d];
  }
  std::vector<placement> placements = l.placements();
  placements[fsdp_dim] = pieces > 1 ? placement::strided_shard(dim, pieces) : placement::shard(dim);
  return layout::make(l.mesh(), std::move(placements), l.shape(), l.rules());
}

}  // namespace shardmesh
