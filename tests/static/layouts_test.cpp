// SPDX-License-Identifier: Apache-2.0
// Layouts at compile time. Compiling is the test.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.layout;

using namespace shardmesh;

namespace {

using grid = static_layout<static_extents{2, 3}, static_extents{10, 7}, placement::shard(0), placement::shard(1)>;
static_assert(std::regular<flat_box>);
static_assert(grid::size() == 6);
static_assert(grid::local_shape(0) == extents{5, 3});
static_assert(grid::local_shape(5) == extents{5, 1});
static_assert(grid::first_index(5) == extents{5, 6});

// torch.chunk of 5 over 4 is 2, 2, 1, 0; an empty shard begins at the end.
using uneven = static_layout<static_extents{4}, static_extents{5}, placement::shard(-1)>;
static_assert(uneven::local_shape(2) == extents{1});
static_assert(uneven::local_shape(3) == extents{0});
static_assert(uneven::first_index(3) == extents{5});

// FSDP over tensor parallelism: rank (0, 1) holds rows 4 and 5 of 8.
using fsdp_tp =
    static_layout<static_extents{2, 2}, static_extents{8}, placement::strided_shard(0, 2), placement::shard(0)>;
static_assert(fsdp_tp::first_index(1) == extents{4});
static_assert(fsdp_tp::first_index(2) == extents{2});

// A strided shard alone: rank 0 of 4 holds 0, 1, and 5 of 9.
using strided = static_layout<static_extents{4}, static_extents{9}, placement::strided_shard(0, 2)>;
static_assert(strided::runs(0, 0) == std::vector<index_run>{{0, 2, 0}, {5, 1, 2}});
static_assert(strided::local_shape(3) == extents{1});

// Segments: rank 1 of 2 holds the second half of each.
using fused = static_layout<static_extents{2}, static_extents{8, 3}, placement::shard_segments(0, {4, 2, 2})>;
static_assert(fused::runs(1, 0) == std::vector<index_run>{{2, 2, 0}, {5, 1, 2}, {7, 1, 3}});
static_assert(fused::local_shape(1) == extents{4, 3} && fused::first_index(1) == extents{2, 0});
static_assert(std::regular<placement> && std::totally_ordered<placement>);
static_assert(placement::shard_segments(0, {4, 2}) != placement::shard_segments(0, {2, 4}));
static_assert(*placement::shard_segments(0, {4, 2}).segments_end() == 6 && placement::shard(0).segments().empty());

// An average of sums is one reduction; layouts without elements are layouts.
using averaged = static_layout<static_extents{2, 3}, static_extents{0, 4}, placement::partial(reduce_op::sum),
                               placement::partial(reduce_op::avg)>;
static_assert(averaged::local_shape(5) == extents{0, 4});
static_assert(are_combinable(reduce_op::avg, reduce_op::sum) && are_combinable(reduce_op::max, reduce_op::max));
static_assert(!are_combinable(reduce_op::max, reduce_op::min) && !are_combinable(reduce_op::sum, reduce_op::max));

using scalar = static_layout<static_extents{2}, static_extents{}, placement::replicate()>;
static_assert(scalar::local_shape(1) == extents{});

// Boxes: a strided shard has several, in local order.
static_assert(strided::boxes(0) == std::vector<placed_box>{{{{0}, {2}}, {0}}, {{{5}, {1}}, {2}}});
static_assert(grid::boxes(5) == std::vector<placed_box>{{{{5, 6}, {5, 1}}, {0, 0}}});
static_assert(fused::boxes(0) == std::vector<placed_box>{{{{0, 0}, {2, 3}}, {0, 0}},
                                                         {{{4, 0}, {1, 3}}, {2, 0}},
                                                         {{{6, 0}, {1, 3}}, {3, 0}}});
static_assert(uneven::boxes(3).empty() && uneven::boxes(4).empty() && uneven::boxes(-1).empty());
static_assert(scalar::boxes(1) == std::vector<placed_box>{{{{}, {}}, {}}});

// Terms are numbered row-major over the partial mesh dimensions; an average counts only its own dimension.
static_assert(averaged::reduction() == reduce_op::avg && averaged::divisor() == 3 && averaged::terms() == 6);
static_assert(averaged::term(0) == 0 && averaged::term(5) == 5 && grid::term(5) == 0 && grid::terms() == 1);

// Even splits: 2 pieces for each of 2 ranks, whose parts another 2 ranks split again.
static_assert(fsdp_tp::even_multiple(0) == 4 && grid::even_multiple(0) == 2 && grid::even_multiple(1) == 3);
static_assert(averaged::even_multiple(1) == 1);
using both = static_layout<static_extents{2, 3}, static_extents{12}, placement::shard(0), placement::shard(0)>;
static_assert(both::even_multiple(0) == 6);
using whole_pieces = static_layout<static_extents{1}, static_extents{9}, placement::strided_shard(0, 4)>;
static_assert(whole_pieces::even_multiple(0) == 1);
static_assert(std::same_as<require_even<both>, both> && std::same_as<require_even<fsdp_tp>, fsdp_tp>);
using no_rows = static_layout<static_extents{3}, static_extents{0, 4}, placement::shard(0)>;
static_assert(std::same_as<require_even<no_rows>, no_rows> && std::same_as<require_even<scalar>, scalar>);

// Layouts at compile time and at run time.
static_assert(compile_time_layout<grid> && compile_time_layout<scalar>);
static_assert(!compile_time_layout<layout> && !compile_time_layout<distribution> && !compile_time_layout<int>);
static_assert(static_size<int> && static_size<std::uint64_t> && !static_size<bool> && !static_size<double>);

// The rules can be checked in advance.
constexpr std::int64_t four[] = {4}, ten[] = {10};
constexpr placement by_rows[] = {placement::shard(0)}, by_columns[] = {placement::shard(1)};
static_assert(!find_layout_problem(four, ten, by_rows));
static_assert(find_layout_problem(four, ten, by_columns) == layout_problem{layout_fault::missing_dimension, 0});
constexpr placement by_segments[] = {placement::shard_segments(0, {6, 3})};
static_assert(find_layout_problem(four, ten, by_segments) == layout_problem{layout_fault::segments_do_not_add_up, 0});

static_assert(split_rule::balanced().part(10, 4, 2) == index_range{6, 2});
static_assert(split_rule::torch_chunk().part_of(10, 4, 9) == 3);

}  // namespace

namespace {

template <class Static>
void check_agreement(const char* mesh, const char* placements, const extents& shape) {
  const auto l = layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value();
  INFO(to_string(l));
  CHECK(Static::as_layout() == l);
  CHECK(Static::reduction() == l.reduction());
  CHECK(Static::divisor() == l.divisor());
  for (std::int32_t rank = 0; rank < Static::size(); ++rank) {
    CHECK(Static::local_shape(rank) == l.local_shape(rank));
    CHECK(Static::first_index(rank) == l.first_index(rank));
    CHECK(Static::boxes(rank) == l.boxes(rank));
  }
}

// An even split gives all ranks equally much of the tensor, and of every piece.
template <std::int64_t Size, placement... Placements>
void check_even(bool expected) {
  INFO("size " << Size);
  using cut = static_layout<static_extents{2, 3}, static_extents{Size}, Placements...>;
  const bool even = Size % cut::even_multiple(0) == 0;
  CHECK(even == expected);
  for (std::int64_t rank = 1; even && rank < 6; ++rank) CHECK(cut::local_shape(rank) == cut::local_shape(0));
}

}  // namespace

TEST_CASE("static layouts agree with layouts at run time") {
  check_agreement<grid>("2,3", "S(0),S(1)", {10, 7});
  check_agreement<uneven>("4", "S(0)", {5});
  check_agreement<fsdp_tp>("2,2", "SS(0,2),S(0)", {8});
  check_agreement<strided>("4", "SS(0,2)", {9});
  check_agreement<fused>("2", "SG(0,4:2:2)", {8, 3});
  check_agreement<averaged>("2,3", "P(sum),P(avg)", {0, 4});
  check_agreement<scalar>("2", "R", {});
}

TEST_CASE("a size is even when every cut of it is") {
  [&]<std::int64_t... Sizes>(std::integer_sequence<std::int64_t, Sizes...>) {
    (check_even<Sizes, placement::shard(0), placement::shard(0)>(Sizes % 6 == 0), ...);
    (check_even<Sizes, placement::shard(0), placement::replicate()>(Sizes % 2 == 0), ...);
    // Three pieces for two ranks, whose parts three ranks split.
    (check_even<Sizes, placement::strided_shard(0, 3), placement::shard(0)>(Sizes % 6 == 0), ...);
    // Halves, each of which is split into two pieces for three ranks.
    (check_even<Sizes, placement::shard(0), placement::strided_shard(0, 2)>(Sizes % 12 == 0), ...);
  }(std::make_integer_sequence<std::int64_t, 25>());
}
