// SPDX-License-Identifier: Apache-2.0
// Tests that each rank learns the bytes that all ranks move from the one agreement, and expands only its own copies.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

distribution over_four(const char* mesh, const char* placements) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), {12, 5}).value())
      .value();
}

}  // namespace

TEST_CASE("an executor knows the bytes that all ranks move") {
  std::vector<tensor_transfer> transfers;
  for (const auto& [from, to] : {std::pair{"S(0),R", "R,R"}, std::pair{"S(0),S(1)", "S(1),S(0)"},
                                 std::pair{"P(sum),R", "S(0),R"}, std::pair{"R,R", "S(1),R"}})
    transfers.push_back({over_four("2,2", from), over_four("2,2", to), dtype::float32, dtype::float64});
  const auto planned = plan(transfers).value();
  REQUIRE(planned.bytes_moved() > 0);
  std::vector<std::int64_t> said(4);
  const auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    auto made = executor::make(plan(transfers), comm);
    if (!made) return std::move(made).error();
    said[static_cast<std::size_t>(comm.rank())] = made->moved_bytes();
    return {};
  });
  INFO((ran ? "" : to_string(ran.error())));
  REQUIRE(ran);
  CHECK(said == std::vector<std::int64_t>(4, planned.bytes_moved()));
}
