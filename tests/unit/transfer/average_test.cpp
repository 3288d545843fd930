// SPDX-License-Identifier: Apache-2.0
// Tests that an average divides by the exact number that its distribution states, which stays an integer.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

distribution terms(reduce_op op, std::int64_t divisor) {
  distribution_builder builder({2}, owner_space::ranks, op, divisor);
  const extents none{0}, all{2};
  for (std::int32_t rank = 0; rank < 3; ++rank) builder.add(rank, 0, none, all, {}, rank);
  return builder.finish().value();
}

// The factors of all steps of a kind, over all ranks.
std::vector<std::int64_t> factors(const distribution& from, const distribution& to, step_kind kind) {
  std::vector<std::int64_t> found;
  const auto planned = plan({{from, to, dtype::float64, dtype::float64}}).value();
  for (owner_id rank = 0; rank < 3; ++rank) {
    const rank_plan mine = planned.for_owner(rank);
    const step_table& steps = mine.steps(0);
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i].kind == kind) found.push_back(steps[i].factor);
  }
  return found;
}

}  // namespace

TEST_CASE("an average is divided by its divisor, exactly, also by one that no float holds") {
  const distribution whole = on_one_rank({2}, 0).value();
  // 1 / (1 / n) differs from n for the last two.
  for (const std::int64_t n :
       {std::int64_t{3}, std::int64_t{49}, (std::int64_t{3} << 51) + 1, (std::int64_t{1} << 53) + 1}) {
    CHECK(factors(terms(reduce_op::avg, n), whole, step_kind::divide) == std::vector<std::int64_t>{n});
    CHECK(factors(terms(reduce_op::avg, n), whole, step_kind::scale).empty());
    CHECK(factors(whole, terms(reduce_op::avg, n), step_kind::scale) == std::vector<std::int64_t>{n});
  }
  CHECK(factors(terms(reduce_op::sum, 0), whole, step_kind::divide).empty());
}
