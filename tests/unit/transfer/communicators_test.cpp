// SPDX-License-Identifier: Apache-2.0
// Tests that executors keep their messages apart, for any communicator and any number of references to it.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.test.forwarding;
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

transfer_plan rows_to_columns() {
  const auto cut = [](const char* how) {
    return distribute(layout::make(parse_mesh("2").value(), parse_placements(how).value(), {2, 2}).value()).value();
  };
  return plan({{cut("S(0)"), cut("S(1)"), dtype::int32, dtype::int32}}).value();
}

// Makes and runs two executors on one rank; `first_is_b` starts the second one first. Each tensor counts up from its
// own number.
[[nodiscard]] std::string run_two(communicator_ref a, communicator_ref b, bool first_is_b) {
  struct part {
    std::array<std::int32_t, 2> from{}, to{-1, -1};
    std::optional<executor> runs;
    pending work;
  };
  std::array<part, 2> parts;
  const communicator_ref comms[] = {a, b};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int32_t base = 10 * static_cast<std::int32_t>(i + 1) + 2 * a.rank();
    parts[i].from = {base, base + 1};
    auto made = executor::make(rows_to_columns(), comms[i], {}, {.in_place = false});
    if (!made) return to_string(made.error());
    parts[i].runs.emplace(*std::move(made));
  }
  for (const std::size_t i : first_is_b ? std::array<std::size_t, 2>{1, 0} : std::array<std::size_t, 2>{0, 1}) {
    const auto view = [](std::array<std::int32_t, 2>& numbers, extents sizes) {
      return tensor_view{reinterpret_cast<std::byte*>(numbers.data()), dtype::int32, {}, sizes, {sizes[1], 1}};
    };
    const const_tensor_binding from{{view(parts[i].from, {1, 2})}};
    const tensor_binding to{{view(parts[i].to, {2, 1})}};
    auto started = parts[i].runs->start(std::span(&from, 1), std::span(&to, 1));
    if (!started) return to_string(started.error());
    parts[i].work = *std::move(started);
    static_cast<void>(parts[i].work.done());  // its messages are on their way
  }
  for (std::size_t i = 0; i < 2; ++i) {
    if (auto done = parts[i].work.wait(); !done) return to_string(done.error());
    const std::int32_t base = 10 * static_cast<std::int32_t>(i + 1) + a.rank();
    if (parts[i].to != std::array{base, base + 2})
      return "executor " + std::to_string(i) + " got " + std::to_string(parts[i].to[0]) + ", " +
             std::to_string(parts[i].to[1]);
  }
  return {};
}

template <class Use>
void on_two_ranks(const Use& use) {
  const watchdog dog(std::chrono::seconds(30));
  const thread_group group(2);
  std::array<std::string, 2> wrong;
  {
    std::vector<std::jthread> threads;
    for (std::int32_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] { wrong[static_cast<std::size_t>(rank)] = use(group.communicator(rank)); });
  }
  CHECK(wrong == std::array<std::string, 2>{});
}

}  // namespace

TEST_CASE("executors on two handles of one communicator keep their messages apart") {
  on_two_ranks([](thread_communicator mine) {
    thread_communicator again = mine;
    return run_two(mine, again, mine.rank() == 1);
  });
}

TEST_CASE("executors on a communicator and on one that owns a copy of it keep their messages apart") {
  on_two_ranks([](thread_communicator mine) {
    any_communicator owning(mine);
    return run_two(mine, owning, mine.rank() == 1);
  });
}

TEST_CASE("executors on a communicator that keeps no numbers keep their messages apart") {
  on_two_ranks([](thread_communicator inner) {
    test::forwarding_communicator mine{inner};
    any_communicator owning(test::forwarding_communicator{inner});
    const std::string wrong = run_two(mine, owning, mine.rank() == 1);
    return wrong.empty() ? run_two(mine, mine, mine.rank() == 1) : wrong;
  });
}
