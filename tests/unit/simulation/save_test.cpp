// SPDX-License-Identifier: Apache-2.0
// A collective DCP save by up to a thousand simulated ranks: the messages of each rank equal the formulas of
// docs/scale.md, and the bytes of a rank other than 0 do not grow with the ranks.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
constexpr std::int64_t agreed_bytes = 40;  // the most that a rank other than 0 sends in one all_gather

// Tensors that are cut by rows over all ranks.
local_state state_of(std::int32_t rank, std::int32_t ranks, std::vector<float>& memory) {
  memory.assign(static_cast<std::size_t>(rows_of_rank * columns), static_cast<float>(rank));
  const box mine{{rows_of_rank * rank, 0}, {rows_of_rank, columns}};
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, mine.sizes, {columns, 1}};
  local_state made;
  for (std::int64_t i = 0; i < tensors; ++i)
    made.tensors.push_back(
        {{"layers", i, "weight"}, {rows_of_rank * ranks, columns}, dtype::float32, {{mine, view}}, {}});
  made.objects.push_back({{"step"}, {}, {std::int64_t{7}}});
  return made;
}

simulation_report save_on(std::int32_t ranks) {
  const scratch_folder folder;
  return simulate_ranks(ranks,
                        [&](any_communicator& comm) -> result<void> {
                          std::vector<float> memory;
                          const local_state mine = state_of(comm.rank(), ranks, memory);
                          const auto report = save(folder / "step", mine, comm, {.durable = false, .threads = 1});
                          if (!report) return report.error();
                          CHECK(report->tensors == tensors);
                          return {};
                        })
      .value();
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
    const simulation_report report = save_on(ranks);
    const rank_traffic& root = report.ranks.front();
    // From every other rank a description and its checksums; to it a size, and its share.
    CHECK(root.received_messages == 2 * (ranks - 1));
    CHECK(root.sent_messages == 2 * (ranks - 1));
    CHECK(root.exchanges == 4);
    CHECK(root.all_gathers == 5);
    std::int64_t sent = 0, received = 0, most = 0;
    for (const rank_traffic& one : std::span(report.ranks).subspan(1)) {
      CHECK(one.sent_messages == 2);
      CHECK(one.received_messages == 2);
      CHECK(one.exchanges == 4);
      CHECK(one.all_gathers == 5);
      CHECK(one.largest_gather <= agreed_bytes);
      CHECK(one.gathered_bytes <= 5 * agreed_bytes * ranks + 4096);  // rank 0 also sends a path and the report
      CHECK(one.sent_bytes + one.received_bytes + one.gathered_bytes <= 1'000'000);
      sent += one.sent_bytes;
      received += one.received_bytes;
      most = std::max(most, one.sent_bytes + one.received_bytes);
    }
    CHECK(root.received_bytes == sent);
    CHECK(root.sent_bytes == received);
    CHECK(most < 100 * tensors);  // about 35 bytes describe a tensor, and 38 are a checksum
    if (most_of_first == 0) most_of_first = most;
    CHECK(most <= most_of_first + most_of_first / 10);  // positions in larger tensors take a byte more
    CHECK(report.critical_path() > 0ns);
  }
}
