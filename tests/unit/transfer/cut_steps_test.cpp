// SPDX-License-Identifier: Apache-2.0
// Tests that a box larger than the memory budget moves in several rounds, each part from and to its right place.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

const extents shape{12, 5};

distribution over_two(const char* placements) {
  return distribute(layout::make(parse_mesh("2").value(), parse_placements(placements).value(), shape).value()).value();
}

tensor_view view_of(std::vector<std::int32_t>& values, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, sizes, contiguous_strides(sizes)};
}

// The elements of `where`, each its own row-major index in the tensor.
std::vector<std::int32_t> numbers_of(const box& where) {
  std::vector<std::int32_t> numbers;
  for (std::int64_t row = 0; row < where.sizes[0]; ++row)
    for (std::int64_t column = 0; column < where.sizes[1]; ++column)
      numbers.push_back(static_cast<std::int32_t>((where.offsets[0] + row) * shape[1] + where.offsets[1] + column));
  return numbers;
}

box local_view(const distribution& d, owner_id rank) {
  box held;
  d.fragments_of(rank, [&](const fragment& f) { return held = f.where, true; });
  return held;
}

}  // namespace

TEST_CASE("boxes that are cut to fit the memory budget arrive whole") {
  for (const auto& [from_text, to_text] : {std::pair{"S(0)", "R"}, {"S(0)", "S(1)"}, {"S(1)", "R"}, {"S(1)", "S(0)"}})
    for (const std::int64_t memory : {8, 24, 40, 100}) {
      const distribution from = over_two(from_text), to = over_two(to_text);
      const transfer_plan planned = plan({{from, to, dtype::int32, dtype::int32}}, {.memory_bytes = memory}).value();
      std::vector<std::vector<std::int32_t>> got(2);
      std::vector<std::int64_t> rounds(2);
      const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
        const auto me = static_cast<std::size_t>(comm.rank());
        const box mine = local_view(from, comm.rank()), wanted = local_view(to, comm.rank());
        std::vector<std::int32_t> source = numbers_of(mine);
        got[me].assign(numbers_of(wanted).size(), -1);
        auto made = executor::make(planned, comm, {}, {.in_place = false});
        if (!made) return std::move(made).error();
        rounds[me] = made->rounds();
        const const_tensor_binding given{{view_of(source, mine.sizes)}};
        const tensor_binding taken{{view_of(got[me], wanted.sizes)}};
        return made->run(std::span(&given, 1), std::span(&taken, 1));
      });
      INFO(from_text << " to " << to_text << " in " << memory << " bytes: " << (ran ? "" : to_string(ran.error())));
      REQUIRE(ran);
      for (owner_id rank = 0; rank < 2; ++rank) {
        CHECK(got[static_cast<std::size_t>(rank)] == numbers_of(local_view(to, rank)));
        CHECK(rounds[static_cast<std::size_t>(rank)] > 1);
      }
    }
}
