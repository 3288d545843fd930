// SPDX-License-Identifier: Apache-2.0
// static_layout: a layout whose mesh, shape and placements are template arguments: the answers of `layout`, constexpr.
export module shardmesh.layout:static_layout;

import shardmesh.std;
import shardmesh.core;
import :cut;
import :placement;
import :reduction;
import :split_rule;

namespace shardmesh::detail {

// What `layout::make` asks of its arguments, at compile time.
constexpr bool is_mesh(std::span<const std::int64_t> sizes) {
  const auto ranks = checked_volume(sizes);
  return ranks && *ranks >= 1 && *ranks <= std::numeric_limits<std::int32_t>::max();
}
constexpr bool has_reductions(std::span<const placement> placements) {
  return std::all_of(placements.begin(), placements.end(), [](const placement& p) {
    return p.kind != placement_kind::partial || p.reduction != reduce_op::none;
  });
}
constexpr bool has_one_reduction(std::span<const placement> placements) {
  for (const placement& a : placements)
    for (const placement& b : placements)
      if (a.kind == placement_kind::partial && b.kind == placement_kind::partial &&
          !are_combinable(a.reduction, b.reduction))
        return false;
  return true;
}
constexpr bool has_few_boxes(std::span<const std::int64_t> mesh, std::span<const std::int64_t> shape,
                             std::span<const placement> placements) {
  std::int64_t boxes = 1;
  for (std::size_t m = 0; m < std::min(mesh.size(), placements.size()); ++m) {
    const placement& p = placements[m];
    const auto rank = static_cast<std::int64_t>(shape.size());
    const std::int64_t dim = p.dim < 0 ? p.dim + rank : p.dim;
    if (!p.is_shard() || dim < 0 || dim >= rank || p.split_factor < 1 || mesh[m] == 1 ||
        p.split_factor >= shape[static_cast<std::size_t>(dim)])
      continue;
    if (p.split_factor > max_boxes_of_a_rank / boxes) return false;
    boxes *= p.split_factor;
  }
  return true;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Sizes as a template argument: `static_extents{2, 3}`.
template <std::size_t Rank>
struct static_extents {
  std::array<std::int64_t, Rank> values{};

  constexpr static_extents() = default;
  template <class... Sizes>
    requires(sizeof...(Sizes) == Rank && Rank > 0)
  constexpr explicit static_extents(Sizes... sizes) : values{static_cast<std::int64_t>(sizes)...} {}
  constexpr operator extents() const { return extents(std::span<const std::int64_t>(values)); }
};
static_extents() -> static_extents<0>;
template <class... Sizes>
static_extents(Sizes...) -> static_extents<sizeof...(Sizes)>;

/// `layout` at compile time, with the torch_chunk rule. What `layout::make` refuses does not compile.
///     using weights = static_layout<static_extents{2, 3}, static_extents{10, 7}, placement::shard(0),
///     placement::shard(1)>; static_assert(weights::local_shape(5) == extents{5, 1});
template <static_extents Mesh, static_extents Shape, placement... Placements>
class static_layout {
 public:
  static constexpr std::size_t mesh_rank = Mesh.values.size();
  static constexpr std::size_t rank = Shape.values.size();
  static_assert(sizeof...(Placements) == mesh_rank, "one placement per mesh dimension");
  static_assert(((!Placements.is_shard() || (Placements.dim < static_cast<std::int32_t>(rank) &&
                                             Placements.dim >= -static_cast<std::int32_t>(rank))) &&
                 ...),
                "a placement names a dimension that the tensor lacks");
  static_assert(((Placements.split_factor >= 1) && ...), "a split factor is at least 1");
  static_assert(detail::is_mesh(Mesh.values), "a mesh dimension has at least one rank, a mesh at most 2^31 - 1");
  static_assert(checked_volume(Shape.values).has_value(),
                "a size of a tensor is not negative, and its elements fit in 64 bits");
  static_assert(detail::has_reductions(std::array<placement, sizeof...(Placements)>{Placements...}),
                "a partial placement needs a reduction");
  static_assert(detail::has_one_reduction(std::array<placement, sizeof...(Placements)>{Placements...}),
                "these reductions of partial placements cannot be combined");
  static_assert(detail::has_few_boxes(Mesh.values, Shape.values,
                                      std::array<placement, sizeof...(Placements)>{Placements...}),
                "a split factor gives a rank too many boxes");

  static constexpr extents mesh() { return Mesh; }
  static constexpr extents shape() { return Shape; }
  static constexpr std::int64_t size() { return box::whole(mesh()).volume(); }

  /// What a rank holds of one tensor dimension, in local order. Precondition: 0 <= at < size().
  static constexpr std::vector<index_run> runs(std::int64_t at, std::size_t dim) {
    extents coordinate = extents::filled(mesh_rank, 0);
    for (std::size_t m = mesh_rank; m-- > 0; at /= Mesh.values[m]) coordinate[m] = at % Mesh.values[m];
    auto held = whole_dimension(Shape.values[dim]);
    std::size_t m = 0;
    const auto apply = [&](const placement& p) {
      const std::int64_t resolved = p.dim < 0 ? p.dim + static_cast<std::int64_t>(rank) : p.dim;
      if (p.is_shard() && resolved == static_cast<std::int64_t>(dim))
        held = cut_runs(held, {Mesh.values[m], p.split_factor, {}}, coordinate[m]);
      ++m;
    };
    (apply(Placements), ...);
    return held;
  }

  /// Sizes of a rank's local tensor.
  static constexpr extents local_shape(std::int64_t at) {
    extents sizes = extents::filled(rank, 0);
    for (std::size_t d = 0; d < rank; ++d) sizes[d] = length_of(runs(at, d));
    return sizes;
  }

  /// Global index of a rank's first element, as `layout::first_index`.
  static constexpr extents first_index(std::int64_t at) {
    extents first = shape();
    for (std::size_t d = 0; d < rank; ++d) {
      const auto held = runs(at, d);
      if (!held.empty()) first[d] = held.front().global;
    }
    return first;
  }
};

}  // namespace shardmesh
