// SPDX-License-Identifier: Apache-2.0
// static_layout: a `layout` whose mesh, shape, and placements are template arguments and whose answers are constexpr.
// Also require_even, which refuses uneven cuts. Transfers between static layouts are in room transfer.
export module shardmesh.layout:static_layout;

import shardmesh.std;
import shardmesh.core;
import :cut;
import :layout_rules;
import :mesh;
import :placement;
import :tensor_layout;

export namespace shardmesh {

/// An integer type for sizes; bool is excluded.
template <class T>
concept static_size = std::integral<T> && !std::same_as<T, bool>;

/// Sizes as a template argument: `static_extents{2, 3}`.
template <std::size_t Rank>
struct static_extents {
  std::array<std::int64_t, Rank> values{};

  constexpr static_extents() = default;
  template <static_size... Sizes>
    requires(sizeof...(Sizes) == Rank && Rank > 0)
  constexpr explicit static_extents(Sizes... sizes) : values{static_cast<std::int64_t>(sizes)...} {}
  constexpr operator extents() const { return extents(std::span<const std::int64_t>(values)); }
};
static_extents() -> static_extents<0>;
template <static_size... Sizes>
static_extents(Sizes...) -> static_extents<sizeof...(Sizes)>;

/// A `layout` at compile time, with the torch_chunk rule. Arguments that `layout::make` refuses do not compile.
///     using weights = static_layout<static_extents{2, 3}, static_extents{10, 7}, placement::shard(0),
///                                   placement::shard(1)>;
///     static_assert(weights::local_shape(5) == extents{5, 1});
/// Ranks are 0 .. size() - 1. Cost: as for `layout`, within the compiler's limit of constexpr steps.
template <static_extents Mesh, static_extents Shape, placement... Placements>
class static_layout {
  static constexpr std::array<placement, sizeof...(Placements)> each_{Placements...};
  static constexpr layout_fault fault = find_layout_problem(Mesh.values, Shape.values, each_).fault;
  static constexpr bool cuts_segments = ((Placements.kind == placement_kind::shard_segments) || ...);

 public:
  static constexpr std::size_t mesh_rank = Mesh.values.size();
  static constexpr std::size_t rank = Shape.values.size();
  static_assert(fault != layout_fault::too_many_mesh_dimensions, "a mesh has at most 16 dimensions");
  static_assert(fault != layout_fault::empty_mesh_dimension, "a mesh dimension has at least one rank");
  static_assert(fault != layout_fault::too_many_ranks, "a mesh has at most 2^31 - 1 ranks");
  static_assert(fault != layout_fault::too_many_dimensions, "a tensor has at most 16 dimensions");
  static_assert(fault != layout_fault::negative_size, "a size of a tensor is not negative");
  static_assert(fault != layout_fault::too_many_elements, "the elements of a tensor fit in 64 bits");
  static_assert(fault != layout_fault::wrong_number_of_placements, "one placement per mesh dimension");
  static_assert(fault != layout_fault::missing_dimension, "a placement names a dimension that the tensor lacks");
  static_assert(fault != layout_fault::split_factor_below_one, "a split factor is at least 1");
  static_assert(fault != layout_fault::wrong_number_of_segments, "a dimension has 1 to 16 segments");
  static_assert(fault != layout_fault::negative_segment, "the size of a segment is not negative");
  static_assert(fault != layout_fault::segments_do_not_add_up, "segments add up to the size of their dimension");
  static_assert(fault != layout_fault::missing_reduction, "a partial placement needs a reduction");
  static_assert(fault != layout_fault::mixed_reductions, "these reductions of partial placements cannot be combined");
  static_assert(fault != layout_fault::too_many_boxes_of_a_rank, "the placements give a rank too many boxes");

  static constexpr extents mesh() { return Mesh; }
  static constexpr extents shape() { return Shape; }
  static constexpr std::int64_t size() { return box::whole(mesh()).volume(); }

  /// As in `layout`: the reduction of the terms, the number of ranks that an average divides by, and the number of
  /// terms.
  static constexpr reduce_op reduction() { return detail::combine_terms(Mesh.values, each_).reduction; }
  static constexpr std::int64_t divisor() { return detail::combine_terms(Mesh.values, each_).divisor; }
  static constexpr std::int32_t terms() {
    return static_cast<std::int32_t>(detail::combine_terms(Mesh.values, each_).terms);
  }
  /// The number of the term that a rank holds; 0 when there are no terms. Precondition: 0 <= at < size().
  static constexpr std::int32_t term(std::int64_t at) { return detail::term_at(Mesh.values, each_, coordinate_of(at)); }

  /// Returns a rank's runs of one tensor dimension, in local order. Precondition: 0 <= at < size().
  static constexpr std::vector<index_run> runs(std::int64_t at, std::size_t dim) {
    const extents coordinate = coordinate_of(at);
    auto held = whole_dimension(Shape.values[dim]);
    for (std::size_t m = 0; m < mesh_rank; ++m)
      if (cuts(m, dim)) held = cut_runs(held, detail::cut_of(each_[m], Mesh.values[m], {}), coordinate[m]);
    return held;
  }

  /// Returns the sizes of a rank's local tensor. Precondition: 0 <= at < size().
  static constexpr extents local_shape(std::int64_t at) {
    extents sizes = extents::filled(rank, 0);
    for (std::size_t d = 0; d < rank; ++d) sizes[d] = length_of(runs(at, d));
    return sizes;
  }

  /// Returns the global index of a rank's first element, as `layout::first_index`. Precondition: 0 <= at < size().
  static constexpr extents first_index(std::int64_t at) {
    extents first = shape();
    for (std::size_t d = 0; d < rank; ++d) {
      const auto held = runs(at, d);
      if (!held.empty()) first[d] = held.front().global;
    }
    return first;
  }

  /// Returns the boxes of a rank's local tensor, as `layout::boxes`; none when the rank is not in the mesh.
  static constexpr std::vector<placed_box> boxes(std::int64_t at) {
    std::vector<placed_box> made;
    if (at < 0 || at >= size()) return made;
    std::vector<std::vector<index_run>> held;
    for (std::size_t d = 0; d < rank; ++d) held.push_back(runs(at, d));
    for_each_box(held, [&](const box& where, const extents& local) {
      made.push_back({where, local});
      return true;
    });
    return made;
  }

  /// Returns the number m such that the mesh cuts this dimension evenly exactly when its size is a multiple of m. After
  /// an even cut, all ranks hold equally many indices, and all pieces of a strided shard are equally long. Returns the
  /// maximum of the type when m does not fit in 64 bits. Does not compile for `shard_segments`, because each of its
  /// segments would need a multiple.
  static constexpr std::int64_t even_multiple(std::size_t dim) {
    static_assert(!cuts_segments, "require_even does not take placement::shard_segments: use the layout without it");
    std::int64_t multiple = 1, parts = 1;  // parts: number of parts after the mesh dimensions so far
    for (std::size_t m = 0; m < mesh_rank; ++m) {
      if (!cuts(m, dim) || Mesh.values[m] == 1) continue;
      parts *= Mesh.values[m];  // at most the number of ranks
      const auto pieces = checked_multiply(parts, each_[m].split_factor);
      const auto both =
          pieces ? checked_multiply(multiple / std::gcd(multiple, *pieces), *pieces) : std::optional<std::int64_t>();
      if (!both) return std::numeric_limits<std::int64_t>::max();
      multiple = *both;
    }
    return multiple;
  }

  /// Makes the layout at run time.
  static layout as_layout() {
    return layout::make(device_mesh::make(Mesh.values).value(), {Placements...}, shape()).value();
  }

 private:
  static constexpr extents coordinate_of(std::int64_t at) {
    extents coordinate = extents::filled(mesh_rank, 0);
    for (std::size_t m = mesh_rank; m-- > 0; at /= Mesh.values[m]) coordinate[m] = at % Mesh.values[m];
    return coordinate;
  }
  static constexpr bool cuts(std::size_t m, std::size_t dim) {
    return each_[m].is_shard() && detail::resolved_dim(each_[m], rank) == dim;
  }
};

/// A type that computes a layout's properties at compile time: every rank's boxes and terms, equal to those of its
/// `as_layout()`.
template <class T>
concept compile_time_layout = requires(std::int64_t at, std::size_t dim) {
  { T::shape() } -> std::same_as<extents>;
  { T::size() } -> std::same_as<std::int64_t>;
  { T::reduction() } -> std::same_as<reduce_op>;
  { T::divisor() } -> std::same_as<std::int64_t>;
  { T::terms() } -> std::same_as<std::int32_t>;
  { T::term(at) } -> std::same_as<std::int32_t>;
  { T::boxes(at) } -> std::same_as<std::vector<placed_box>>;
  { T::even_multiple(dim) } -> std::same_as<std::int64_t>;
  { T::as_layout() } -> std::same_as<layout>;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// Returns the smallest evenly cut size that is at least `size`; the maximum of the type when there is none.
constexpr std::int64_t next_even_size(std::int64_t size, std::int64_t multiple) {
  if (size == 0) return 0;
  return checked_multiply((size - 1) / multiple + 1, multiple).value_or(std::numeric_limits<std::int64_t>::max());
}

// The compiler's message prints the template arguments, which contain both sizes.
template <std::size_t Dimension, std::int64_t Size, std::int64_t NextEvenSize>
struct cut_evenly {
  static_assert(Size == NextEvenSize,
                "the mesh does not divide a dimension of the tensor: pad it from the first of these sizes to the "
                "second, shard another dimension, or leave out require_even");
  static constexpr bool value = true;
};

template <class Layout, class Dimensions = std::make_index_sequence<Layout::shape().rank()>>
struct evenly_cut;
template <class Layout, std::size_t... Dimensions>
struct evenly_cut<Layout, std::index_sequence<Dimensions...>> {
  static_assert((cut_evenly<Dimensions, Layout::shape()[Dimensions],
                            next_even_size(Layout::shape()[Dimensions], Layout::even_multiple(Dimensions))>::value &&
                 ...));
  using type = Layout;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The same layout, if the mesh cuts every dimension evenly. Otherwise it does not compile, and the compiler names the
/// size and the next larger one that is cut evenly.
///     using weights = require_even<static_layout<static_extents{4}, static_extents{8, 3}, placement::shard(0)>>;
template <compile_time_layout Layout>
using require_even = typename detail::evenly_cut<Layout>::type;

}  // namespace shardmesh
