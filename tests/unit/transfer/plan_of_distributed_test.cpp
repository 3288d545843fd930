// SPDX-License-Identifier: Apache-2.0
// Tests plans and tensor sides of everything that has a distribution.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <utility>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace users {

struct silent {};
result<distribution> distribution_of(const silent&) {
  return fail(errc::invalid_argument, "it does not say");
}

}  // namespace users

TEST_CASE("a plan between two layouts says what moves") {
  const device_mesh two = device_mesh::make({2}).value();
  const layout rows = layout::make(two, {placement::shard(0)}, {4, 4}).value();
  const layout columns = layout::make(two, {placement::shard(1)}, {4, 4}).value();
  const transfer_plan planned = plan(rows, columns, dtype::float32).value();
  CHECK(planned.bytes_moved() == 2 * 4 * 4);  // each rank keeps four of its eight elements
  CHECK(planned.bytes(0, 1) == 16);
  CHECK(
      planned.digest() ==
      plan({{distribute(rows).value(), distribute(columns).value(), dtype::float32, dtype::float32}}).value().digest());
  CHECK(plan(rows, distribute(columns).value(), dtype::float32).value().digest() == planned.digest());
  CHECK(plan(users::silent(), rows, dtype::float32).error().message == "it does not say");
  CHECK(plan(rows, users::silent(), dtype::float32).error().message == "it does not say");
}

TEST_CASE("a side is made of whatever is distributed") {
  const layout rows = layout::make(device_mesh::make({2}).value(), {placement::shard(0)}, {4, 4}).value();
  host_tensor part = host_tensor::zeros(dtype::float32, {2, 4}).value();
  const tensor_side side = side_of(rows, part).value();
  CHECK(side.where == distribute(rows).value());
  CHECK(side.type == dtype::float32);
  REQUIRE(side.memory.slots.size() == 1);
  CHECK(side.memory.slots[0].data == part.bytes().data());
  const tensor_side none = side_of(rows, dtype::float16).value();
  CHECK(none.type == dtype::float16);
  CHECK(none.memory.slots.empty());
  CHECK(side_of(users::silent(), part).error().message == "it does not say");
  CHECK(side_of(users::silent(), dtype::float16).error().message == "it does not say");
}
