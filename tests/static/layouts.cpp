// SPDX-License-Identifier: Apache-2.0
// Layouts at compile time. Compiling is the test.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>
import shardmesh;

using namespace shardmesh;

namespace {

using grid = static_layout<static_extents{2, 3}, static_extents{10, 7}, placement::shard(0), placement::shard(1)>;
static_assert(grid::size() == 6);
static_assert(grid::local_shape(0) == extents{5, 3});
static_assert(grid::local_shape(5) == extents{5, 1});
static_assert(grid::first_index(5) == extents{5, 6});

// torch.chunk of 5 over 4 is 2, 2, 1, 0; what is empty begins at the end.
using uneven = static_layout<static_extents{4}, static_extents{5}, placement::shard(-1)>;
static_assert(uneven::local_shape(2) == extents{1});
static_assert(uneven::local_shape(3) == extents{0});
static_assert(uneven::first_index(3) == extents{5});

// FSDP over tensor parallelism: rank (0, 1) holds rows 4 and 5 of 8.
using fsdp_tp =
    static_layout<static_extents{2, 2}, static_extents{8}, placement::strided_shard(0, 2), placement::shard(0)>;
static_assert(fsdp_tp::first_index(1) == extents{4});
static_assert(fsdp_tp::first_index(2) == extents{2});

// A strided shard alone: rank 0 of 4 holds 0, 1 and 5 of 9.
using strided = static_layout<static_extents{4}, static_extents{9}, placement::strided_shard(0, 2)>;
static_assert(strided::runs(0, 0) == std::vector<index_run>{{0, 2, 0}, {5, 1, 2}});
static_assert(strided::local_shape(3) == extents{1});

// An average of sums is one reduction; layouts without elements are layouts.
using averaged = static_layout<static_extents{2, 3}, static_extents{0, 4}, placement::partial(reduce_op::sum),
                               placement::partial(reduce_op::avg)>;
static_assert(averaged::local_shape(5) == extents{0, 4});
static_assert(are_combinable(reduce_op::avg, reduce_op::sum) && are_combinable(reduce_op::max, reduce_op::max));
static_assert(!are_combinable(reduce_op::max, reduce_op::min) && !are_combinable(reduce_op::sum, reduce_op::max));

using scalar = static_layout<static_extents{2}, static_extents{}, placement::replicate()>;
static_assert(scalar::local_shape(1) == extents{});

static_assert(split_rule::balanced().part(10, 4, 2) == index_range{6, 2});
static_assert(split_rule::torch_chunk().part_of(10, 4, 9) == 3);

}  // namespace

TEST_CASE("static layouts agree with layouts at run time") {
  const auto l = layout::make(parse_mesh("2,3").value(), {placement::shard(0), placement::shard(1)}, {10, 7}).value();
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    CHECK(grid::local_shape(rank) == l.local_shape(rank));
    CHECK(grid::first_index(rank) == l.first_index(rank));
  }
}
