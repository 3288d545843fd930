// SPDX-License-Identifier: Apache-2.0
// Offers of object numbers that ranks merge on their way to the rank that chooses.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <random_seed.hpp>
#include <span>
#include <vector>
import shardmesh.comm;

using namespace shardmesh;

namespace {

using offered = std::array<std::span<const std::byte>, 2>;

// Numbers of a rank that has made and destroyed objects, and the objects that it still has.
struct used_numbers {
  object_numbers numbers;
  std::vector<held_number> held;

  used_numbers(dice& die, numbered_object kind) {
    for (std::int64_t i = die.below(5); i > 0; --i) {
      const std::vector<std::byte> own = numbers.offer(kind);
      const std::span<const std::byte> offer = own;
      static_cast<void>(numbers.choose(kind, {&offer, 1}).value());
    }
    // Few live numbers are listed, and many are bits.
    for (std::int64_t i = die.below(die.one_in(2) ? 5 : 300); i > 0; --i)
      held.push_back(numbers.hold(kind, static_cast<std::uint32_t>(1 + die.below(1022))));
  }
};

}  // namespace

TEST_CASE("a merged offer leads to the number that the two offers lead to") {
  for (const std::uint64_t seed : random_seed::seeds(100)) {
    INFO("SHARDMESH_SEED=" << seed);
    dice die(seed);
    const numbered_object kind = die.one_in(2) ? numbered_object::executor : numbered_object::subgroup;
    const used_numbers one(die, kind), other(die, kind);
    const std::vector<std::byte> first = one.numbers.offer(kind), second = other.numbers.offer(kind);
    const offered both{first, second};
    object_numbers apart, together;
    const auto merged = object_numbers::merge(first, second);
    REQUIRE(merged.has_value());
    const std::span<const std::byte> offer = *merged;
    CHECK(together.choose(kind, {&offer, 1}).value() == apart.choose(kind, both).value());
    CHECK(object_numbers::merge(second, first) == merged);
    CHECK(object_numbers::merge(first, first) == first);
    for (std::size_t length = 0; length < second.size(); ++length)
      CHECK_FALSE(object_numbers::merge(first, std::span(second).first(length)).has_value());
  }
}
