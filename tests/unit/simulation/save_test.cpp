// SPDX-License-Identifier: Apache-2.0
// Collective DCP saves by up to a thousand simulated ranks, and a load. The messages of each rank equal the formulas of
// docs/scale.md, and the bytes of a rank other than 0 do not grow with the ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <sanitized.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>
import shardmesh.collective_checkpoint;
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t tensors = 40, rows_of_rank = 2, columns = 8;
constexpr std::int64_t agreements = 5, root_notes = 2;  // of a save; rank 0's notes are the folder and the report

// A rank's rows of all tensors, in memory of their own.
struct rank_rows {
  std::vector<float> memory;
  local_state state;

  rank_rows(std::int32_t rank, std::int32_t ranks, std::int64_t rows)
      : memory(static_cast<std::size_t>(tensors * rows * columns)) {
    const box mine{{rows * rank, 0}, {rows, columns}};
    for (std::int64_t i = 0; i < tensors; ++i) {
      auto* const first = reinterpret_cast<std::byte*>(memory.data() + i * rows * columns);
      const tensor_view view{first, dtype::float32, {}, mine.sizes, {columns, 1}};
      state.tensors.push_back({{"layers", i, "weight"}, {rows * ranks, columns}, dtype::float32, {{mine, view}}, {}});
    }
    state.objects.push_back({{"step"}, {}, {std::int64_t{7}}});
  }

  // Returns the elements of this rank: each has another value.
  static std::vector<float> values(std::int32_t rank, std::int64_t rows) {
    std::vector<float> made;
    for (std::int64_t i = 0; i < tensors; ++i)
      for (std::int64_t at = 0; at < rows * columns; ++at)
        made.push_back(static_cast<float>(i * 100'000 + rows * columns * rank + at));
    return made;
  }
};

simulation_report save_on(std::int32_t ranks, const std::filesystem::path& folder) {
  const auto body = [&](any_communicator& comm) -> result<void> {
    rank_rows mine(comm.rank(), ranks, rows_of_rank);
    std::ranges::copy(rank_rows::values(comm.rank(), rows_of_rank), mine.memory.begin());
    const auto report = save(folder, mine.state, comm, {.durable = false, .threads = 1});
    if (!report) return report.error();
    CHECK(report->tensors == tensors);
    return {};
  };
  return simulate_ranks(ranks, body).value();
}

}  // namespace

TEST_CASE("a rank of a save sends and receives what docs/scale.md states, with up to 1,024 ranks") {
  const watchdog dog(300s);
  std::vector<std::int32_t> sizes{64, 256};
#ifndef SHARDMESH_TEST_SANITIZED
  sizes.push_back(1024);
#endif
  std::int64_t most_of_first = 0;
  for (const std::int32_t ranks : sizes) {
    INFO(ranks << " ranks");
    const scratch_folder folder;
    const simulation_report report = save_on(ranks, folder / "step");
    std::int64_t sent = 0, received = 0, most = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      INFO("rank " << rank);
      const rank_traffic& one = report.ranks[static_cast<std::size_t>(rank)];
      const std::int64_t below = std::ssize(detail::rank_tree{rank, ranks}.children()), above = rank == 0 ? 0 : 1;
      // Between rank 0 and another rank: a description, checksums, and a share, each with a size before it.
      const std::int64_t to_root = above * 4, to_others = (1 - above) * 2 * (ranks - 1);
      CHECK(one.sent_messages == agreements * (above + below) + root_notes * 2 * below + to_root + to_others);
      CHECK(one.received_messages ==
            agreements * (above + below) + root_notes * 2 * above + above * 2 + (1 - above) * 4 * (ranks - 1));
      CHECK(one.exchanges ==
            agreements * (above + (below > 0 ? 2 : 0)) + root_notes * 2 * (above + (below > 0 ? 1 : 0)) + 6);
      CHECK(one.all_gathers == 0);
      sent += one.sent_bytes;
      received += one.received_bytes;
      if (rank != 0) most = std::max(most, one.sent_bytes + one.received_bytes);
    }
    CHECK(received == sent);
    // About 35 bytes describe a tensor, and 38 are a checksum. The rest is the agreements of a rank with children.
    CHECK(most < 100 * tensors + 8000);
    if (most_of_first == 0) most_of_first = most;
    CHECK(most <= most_of_first + most_of_first / 10);  // positions in larger tensors take a byte more
    CHECK(report.critical_path() > 0ns);
  }
}

TEST_CASE("a save that keeps its plan sends neither descriptions nor shares") {
  const watchdog dog(300s);
  for (const std::int32_t ranks : {64, 256}) {
    INFO(ranks << " ranks");
    const scratch_folder folder;
    std::vector<save_plan_cache> plans;
    for (std::int32_t rank = 0; rank < ranks; ++rank) plans.push_back(save_plan_cache::make());
    const auto body = [&](any_communicator& comm) -> result<void> {
      rank_rows mine(comm.rank(), ranks, rows_of_rank);
      const auto report = save(
          folder / "step", mine.state, comm,
          {.overwrite = true, .durable = false, .threads = 1, .plans = plans[static_cast<std::size_t>(comm.rank())]});
      if (!report) return report.error();
      CHECK(report->tensors == tensors);
      return {};
    };
    REQUIRE(simulate_ranks(ranks, body).has_value());
    const simulation_report report = simulate_ranks(ranks, body).value();
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      INFO("rank " << rank);
      const rank_traffic& one = report.ranks[static_cast<std::size_t>(rank)];
      const std::int64_t below = std::ssize(detail::rank_tree{rank, ranks}.children()), above = rank == 0 ? 0 : 1;
      // The first agreement combines notes: up and down, a size and a note. The checksums go to rank 0, after a size.
      const std::int64_t edges = (agreements + 2) * (above + below);
      CHECK(one.sent_messages == edges + root_notes * 2 * below + above * 2);
      CHECK(one.received_messages == edges + root_notes * 2 * above + (1 - above) * 2 * (ranks - 1));
      CHECK(one.all_gathers == 0);
      CHECK(plans[static_cast<std::size_t>(rank)].reuses() == 1);
    }
  }
}

TEST_CASE("simulated ranks load what twice as many saved") {
  const watchdog dog(120s);
  const scratch_folder folder;
  static_cast<void>(save_on(48, folder / "step"));
  const auto loaded = simulate_ranks(24, [&](any_communicator& comm) -> result<void> {
    rank_rows mine(comm.rank(), comm.size(), 2 * rows_of_rank);
    const auto report = load(folder / "step", mine.state, comm, {.threads = 1});
    if (!report) return report.error();
    CHECK(mine.memory == rank_rows::values(comm.rank(), 2 * rows_of_rank));
    return {};
  });
  CHECK(loaded.has_value());
}
