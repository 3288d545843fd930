// SPDX-License-Identifier: Apache-2.0
// The messages of a DCP save by many ranks, counted on each rank: what a rank other than 0 sends and receives does not
// grow with the number of ranks. Up to 16 ranks agree with an all_gather of a few bytes, more along a tree.
// docs/scale.md has the formulas.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <most_of_others.hpp>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
#include <watchdog.hpp>
import shardmesh.collective_checkpoint;
import shardmesh.test.forwarding;
import shardmesh.test.saving;

using namespace shardmesh;
using namespace saving;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t tensors = 100, rows_of_rank = 4, columns = 8;
constexpr std::int64_t agreed_bytes = 40;  // the most that a rank sends to all others in one round

struct traffic {
  std::int64_t rounds = 0;                       // calls of all_gather
  std::int64_t largest_round = 0;                // the most bytes that this rank sent to all others in one of them
  std::int64_t messages = 0, message_bytes = 0;  // sent and received, between rank 0 and another rank
  std::int64_t on_tree = 0;                      // messages along the tree, sent and received
};

struct counting_communicator : test::forwarding_communicator {
  traffic* counted = nullptr;

  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    ++counted->rounds;
    counted->largest_round = std::max(counted->largest_round, std::ssize(bytes));
    return inner.all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    const std::int64_t messages = std::ssize(s) + std::ssize(r);
    if (o.tag == detail::tree_tag) {
      counted->on_tree += messages;
      return inner.start_exchange(s, r, o);
    }
    counted->messages += messages;
    for (const outgoing& one : s) counted->message_bytes += std::ssize(one.bytes);
    for (const incoming& one : r) counted->message_bytes += std::ssize(one.bytes);
    return inner.start_exchange(s, r, o);
  }
};
static_assert(communicator<counting_communicator>);

enum class held_form { rows, whole };  // whole: every rank holds every tensor

local_state state_of(held_form how, std::int32_t rank, std::int32_t ranks, std::vector<float>& memory) {
  const extents shape{how == held_form::rows ? rows_of_rank * ranks : rows_of_rank, columns};
  const box mine{{how == held_form::rows ? rows_of_rank * rank : 0, 0}, {rows_of_rank, columns}};
  memory.assign(static_cast<std::size_t>(rows_of_rank * columns), 1);
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, mine.sizes, {columns, 1}};
  local_state made;
  for (std::int64_t i = 0; i < tensors; ++i)
    made.tensors.push_back({{"layers", i, "weight"}, shape, dtype::float32, {{mine, view}}});
  made.objects.push_back({{"step"}, {}, {std::int64_t{7}}});
  return made;
}

// Saves on ranks that are threads, and returns the traffic of each.
std::vector<traffic> save_on(std::int32_t ranks, held_form how) {
  const fabric::rank_folder folder("traffic");
  const thread_group group(ranks);
  std::vector<traffic> counted(static_cast<std::size_t>(ranks));
  std::vector<std::string> wrong(counted.size());
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto place = static_cast<std::size_t>(rank);
      counting_communicator comm{{group.communicator(rank)}, &counted[place]};
      std::vector<float> memory;
      const local_state mine = state_of(how, rank, ranks, memory);
      const auto report =
          save(folder.path / "step", mine, comm, {.overwrite = true, .durable = false, .threads = 1, .within = 120s});
      if (!report) wrong[place] = text_of(report.error().problems());
      if (report && report->tensors != tensors) wrong[place] = std::to_string(report->tensors) + " tensors";
      group.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(wrong.size()));
  return counted;
}

}  // namespace

TEST_CASE("what a rank sends and receives in a save does not grow with the number of ranks") {
  const watchdog dog(300s);
  for (const held_form how : {held_form::rows, held_form::whole}) {
    std::int64_t of_four = 0;
    for (const std::int32_t ranks : {4, 8, 16, 32}) {
      INFO((how == held_form::rows ? "cut by rows, " : "replicated, ") << ranks << " ranks");
      const std::vector<traffic> counted = save_on(ranks, how);
      std::int64_t of_others = 0;
      for (const traffic& one : std::span(counted).subspan(1)) {
        CHECK(one.largest_round <= agreed_bytes);
        CHECK(one.messages == 6);  // description and checksums to rank 0, and the share from it, each after its size
        of_others += one.message_bytes;
      }
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const traffic& one = counted[static_cast<std::size_t>(rank)];
        CHECK(one.rounds == (ranks <= detail::most_gathered_ranks ? 5 : 0));
        // Per neighbour, a ballot and a verdict of five agreements; two of them also have a note of rank 0 and its
        // size.
        const std::int64_t neighbours = std::ssize(detail::rank_tree{rank, ranks}.children()) + (rank == 0 ? 0 : 1);
        CHECK(one.on_tree == (ranks <= detail::most_gathered_ranks ? 0 : 14 * neighbours));
      }
      CHECK(counted.front().messages == 6 * (ranks - 1));
      CHECK(counted.front().message_bytes == of_others);
      const std::int64_t most = most_of_others(counted, &traffic::message_bytes);
      CHECK(most < 100 * tensors);  // of these, about 35 describe a tensor, and 38 are a checksum
      if (ranks == 4) of_four = most;
      // Positions in larger tensors take a byte more.
      CHECK(most <= of_four + of_four / 10);
    }
  }
}
