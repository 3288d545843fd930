// SPDX-License-Identifier: Apache-2.0
// Transfers at compile time. Compiling is the test; tests/unit/transfer/static_transfer_test.cpp compares them with the
// planner.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>
import shardmesh;
import shardmesh.layout;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

// Rows to columns: every rank keeps one corner and sends a quarter of its part to each other rank.
constexpr static_extents square{8, 8};
using rows = static_layout<static_extents{4}, square, placement::shard(0)>;
using columns = static_layout<static_extents{4}, square, placement::shard(1)>;
using transposed = static_transfer<rows, columns>;
static_assert(transposed::ranks == 4);
static_assert(transposed::kept<1>.size() == 1 && transposed::kept<1>[0] == box{{2, 2}, {2, 2}});
static_assert(transposed::sends<1>.size() == 3);
static_assert(transposed::sends<1>[0] == moved_box{0, {{2, 0}, {2, 2}}});
static_assert(transposed::sends<1>[1] == moved_box{2, {{2, 4}, {2, 2}}});
static_assert(transposed::sends<1>[2] == moved_box{3, {{2, 6}, {2, 2}}});
static_assert(transposed::receives<1>[0] == moved_box{0, {{0, 2}, {2, 2}}});
static_assert(transposed::bytes<1, 3> == 16 && transposed::bytes<1, 1> == 0);
static_assert(transposed::bytes_total == 256 && transposed::bytes_moved == 192 && transposed::lower_bound == 192);
static_assert(transposed::is_minimal);
static_assert(static_transfer<rows, columns, dtype::bfloat16>::bytes_moved == 96);
static_assert(static_transfer<rows, columns, dtype::float4_e2m1fn>::bytes_moved == 24);

// A layout to itself moves nothing.
static_assert(static_transfer<rows, rows>::bytes_moved == 0 && static_transfer<rows, rows>::bytes_total == 256);
static_assert(static_transfer<rows, rows>::sends<2>.empty() && static_transfer<rows, rows>::kept<2>.size() == 1);

// Receivers alternate between the holders: 2 takes from 0, 3 from 1, 4 from 0.
using on_two = static_layout<static_extents{2}, static_extents{6}, placement::replicate()>;
using on_five = static_layout<static_extents{5}, static_extents{6}, placement::replicate()>;
using copied = static_transfer<on_two, on_five>;
static_assert(copied::sends<0>.size() == 2 && copied::sends<0>[0].peer == 2 && copied::sends<0>[1].peer == 4);
static_assert(copied::sends<1>.size() == 1 && copied::sends<1>[0] == moved_box{3, {{0}, {6}}});
static_assert(copied::receives<1>.empty() && copied::kept<1>[0] == box{{0}, {6}});
static_assert(copied::ranks == 5 && copied::bytes_moved == 3 * 24 && copied::is_minimal);

// Fewer ranks: ranks outside the destination only send.
using shrunk = static_transfer<on_five, static_layout<static_extents{2}, static_extents{6}, placement::shard(0)>>;
static_assert(shrunk::bytes_moved == 0 && shrunk::sends<4>.empty() && shrunk::kept<4>.empty());

// Terms of sums meet at the rank that wants the value: a reduce-scatter, and an all-reduce over one reducer.
using terms = static_layout<static_extents{2}, static_extents{4}, placement::partial(reduce_op::sum)>;
using halves = static_layout<static_extents{2}, static_extents{4}, placement::shard(0)>;
using scattered = static_transfer<terms, halves>;
static_assert(scattered::sends<0>.size() == 1 && scattered::sends<0>[0] == moved_box{1, {{2}, {2}}});
static_assert(scattered::sends<1>[0] == moved_box{0, {{0}, {2}}} && scattered::kept<0>.empty());
static_assert(scattered::bytes_moved == 16 && scattered::is_minimal);
static_assert(scattered::steps<0>[0].to.side == buffer_side::staging);
using reduced = static_transfer<terms, static_layout<static_extents{2}, static_extents{4}, placement::replicate()>>;
static_assert(reduced::bytes_moved == 32 && reduced::lower_bound == 32);

// Scalars and tensors without elements are ordinary.
using scalar = static_layout<static_extents{2}, static_extents{}, placement::replicate()>;
using one_scalar = static_layout<static_extents{}, static_extents{}>;
static_assert(static_transfer<one_scalar, scalar>::sends<0>[0] == moved_box{1, {}});
static_assert(static_transfer<one_scalar, scalar>::bytes_moved == 4);
using nothing = static_layout<static_extents{3}, static_extents{0, 4}, placement::shard(0)>;
static_assert(static_transfer<nothing, nothing>::bytes_total == 0 && static_transfer<nothing, nothing>::is_minimal);

// Large meshes and tensors stay within the compiler's default limits, because only boxes are examined. On 8 x 8 ranks,
// 56 of 64 blocks of 128 x 128 change their rank.
constexpr static_extents mesh{8, 8}, matrix{1024, 1024};
using blocks = static_layout<mesh, matrix, placement::shard(0), placement::shard(1)>;
using swapped_blocks = static_layout<mesh, matrix, placement::shard(1), placement::shard(0)>;
static_assert(static_transfer<blocks, swapped_blocks>::bytes_moved == 56 * 128 * 128 * 4);
static_assert(static_transfer<blocks, swapped_blocks>::is_minimal);
static_assert(static_transfer<blocks, swapped_blocks>::sends<1>[0] == moved_box{8, {{0, 128}, {128, 128}}});
using sixteen = static_layout<static_extents{4, 4}, matrix, placement::shard(0), placement::shard(1)>;
using everywhere = static_layout<static_extents{4, 4}, matrix, placement::replicate(), placement::replicate()>;
static_assert(static_transfer<sixteen, everywhere>::bytes_moved == 15 * 1024 * 1024 * 4);
using thin = static_layout<static_extents{64}, matrix, placement::shard(0)>;
static_assert(static_transfer<blocks, thin>::bytes_moved == 64LL * (16 * 1024 - 16 * 128) * 4);

}  // namespace

TEST_CASE("a static transfer becomes the plan of its layouts") {
  const auto planned = plan({{distribute(rows::as_layout()).value(), distribute(columns::as_layout()).value(),
                              dtype::float32, dtype::float32}})
                           .value();
  CHECK(transposed::plan().digest() == planned.digest());
  CHECK(transposed::plan().bytes_moved() == 192);
}
