// SPDX-License-Identifier: Apache-2.0
// The messages of a load by many ranks, counted on each rank: the plan that a rank other than 0 sends and receives does
// not grow with the number of ranks. Up to 16 ranks agree with an all_gather of a few bytes, more along a tree.
// docs/scale.md has the formulas. Also a rank that dies at any of these messages, and a rank whose copy of the
// checkpoint is damaged.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
constexpr std::int64_t agreed_bytes = 256;             // the most that a rank sends to all others in one round
constexpr std::uint32_t plan_tag = (1U << 12) - 1;     // of messages to and from rank 0
constexpr std::int64_t never = std::int64_t{1} << 40;  // a call that is not reached

struct traffic {
  std::int64_t calls = 0;                  // of the communicator
  std::int64_t rounds = 0;                 // calls of all_gather
  std::int64_t largest_round = 0;          // the most bytes that this rank sent to all others in one of them
  std::int64_t plans = 0, plan_bytes = 0;  // messages between rank 0 and another rank
  std::int64_t data = 0;                   // messages with elements of tensors, sent and received
};

// Counts the traffic. From call number `dies_at` on, nothing is sent or received.
struct counting_communicator : test::forwarding_communicator {
  traffic* counted = nullptr;
  std::int64_t dies_at = never;

  result<void> begin() const {
    if (counted->calls++ < dies_at) return {};
    return fail(errc::communication, "this rank has died");
  }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    if (auto begun = begin(); !begun) return std::move(begun).error();
    ++counted->rounds;
    counted->largest_round = std::max(counted->largest_round, std::ssize(bytes));
    return inner.all_gather(bytes, o);
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    if (auto begun = begin(); !begun) return std::move(begun).error();
    const std::int64_t messages = std::ssize(s) + std::ssize(r);
    if (o.tag == detail::tree_tag) return inner.start_exchange(s, r, o);  // agreements; see save_traffic_test.cpp
    (o.tag == plan_tag ? counted->plans : counted->data) += messages;
    if (o.tag == plan_tag) {
      for (const outgoing& one : s) counted->plan_bytes += std::ssize(one.bytes);
      for (const incoming& one : r) counted->plan_bytes += std::ssize(one.bytes);
    }
    return inner.start_exchange(s, r, o);
  }
};
static_assert(communicator<counting_communicator>);

// The boxes that ranks hold: different rows; these with a row of each neighbour, so that boxes overlap; or everything.
enum class held_form { rows, overlapping_rows, whole };

box box_of(held_form how, std::int32_t rank, std::int32_t ranks) {
  std::int64_t begin = rows_of_rank * rank, end = begin + rows_of_rank;
  if (how == held_form::whole) begin = 0, end = rows_of_rank;
  if (how == held_form::overlapping_rows) {
    begin = std::max<std::int64_t>(begin - 1, 0);
    end = std::min(end + 1, rows_of_rank * ranks);
  }
  return {{begin, 0}, {end - begin, columns}};
}

// This rank's part of tensors whose elements are numbered, in the order of the whole tensor.
struct held_rows {
  local_state state;
  std::vector<std::vector<float>> memory, expected;

  held_rows(held_form how, std::int32_t rank, std::int32_t ranks, bool is_filled)
      : memory(static_cast<std::size_t>(tensors)) {
    const extents shape{how == held_form::whole ? rows_of_rank : rows_of_rank * ranks, columns};
    const box mine = box_of(how, rank, ranks);
    for (std::int64_t i = 0; i < tensors; ++i) {
      std::vector<float> values;
      for (std::int64_t k = 0; k < mine.volume(); ++k)
        values.push_back(static_cast<float>(mine.offsets[0] * columns + k + i));
      std::vector<float>& to = memory[static_cast<std::size_t>(i)];
      to.assign(values.size(), -1);
      if (is_filled) to = values;
      expected.push_back(std::move(values));
      const tensor_view view{reinterpret_cast<std::byte*>(to.data()), dtype::float32, {}, mine.sizes, {columns, 1}};
      state.tensors.push_back({{"layers", i, "weight"}, shape, dtype::float32, {{mine, view}}});
    }
    state.objects.push_back({{"step"}, {}, {std::int64_t{is_filled ? 7 : 0}}});
  }
};

// Runs a function on ranks that are threads, each with a communicator that counts. Returns the error text of each rank.
std::vector<std::string> on_threads(std::int32_t ranks, std::vector<traffic>& counted, std::int32_t victim,
                                    std::int64_t dies_at,
                                    const std::function<result<void>(counting_communicator&)>& body) {
  const thread_group group(ranks);
  counted.assign(static_cast<std::size_t>(ranks), {});
  std::vector<std::string> wrong(counted.size());
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto place = static_cast<std::size_t>(rank);
      counting_communicator comm{{group.communicator(rank)}, &counted[place], rank == victim ? dies_at : never};
      if (const auto done = body(comm); !done) wrong[place] = text_of(done.error().problems());
      group.leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

void save_on(std::int32_t ranks, held_form how, const fs::path& checkpoint) {
  std::vector<traffic> counted;
  const auto wrong = on_threads(ranks, counted, -1, never, [&](counting_communicator& comm) -> result<void> {
    const held_rows mine(how == held_form::whole ? how : held_form::rows, comm.rank(), ranks, true);
    const auto report = save(checkpoint, mine.state, comm, {.overwrite = true, .durable = false, .threads = 1});
    if (!report) return report.error();
    return {};
  });
  REQUIRE(wrong == std::vector<std::string>(wrong.size()));
}

result<void> load_on(counting_communicator& comm, held_form how, const fs::path& checkpoint, bool check = false) {
  held_rows mine(how, comm.rank(), comm.size(), false);
  const auto report = load(checkpoint, mine.state, comm,
                           {.threads = 1, .check = check, .within = 120s, .sharing = read_sharing::group});
  if (!report) return report.error();
  if (mine.memory != mine.expected) return fail(errc::io, "the values differ");
  if (mine.state.objects.front().leaves != std::vector<plain_value>{std::int64_t{7}})
    return fail(errc::io, "the object differs");
  if (std::ssize(report->loaded) != tensors + 1 || !report->missing.empty() || !report->unexpected.empty() ||
      !report->casts.empty())
    return fail(errc::io, "the report differs");
  return {};
}

// The rounds of all_gather of at most 16 ranks, and the messages between rank 0 and another rank. More ranks have no
// round of all_gather, because no agreement of a load has notes of several ranks that cannot be combined.
struct expected_rounds {
  std::int64_t rounds = 0, plans = 0;
};
expected_rounds expected_of(held_form how) {
  // One round agrees and one ends the reads; requests go to rank 0, and the share comes back, each after its size.
  switch (how) {
    case held_form::rows:
      return {2, 4};
    case held_form::whole:
      return {4, 4};  // an executor, and the end of its run
    case held_form::overlapping_rows:
      return {5, 6};  // as well as the end of the staged reads; a size and the share of the rounds
  }
  return {};
}

}  // namespace

TEST_CASE("the plan that a rank sends and receives in a load does not grow with the number of ranks") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("load-traffic");
  for (const held_form how : {held_form::rows, held_form::overlapping_rows, held_form::whole}) {
    std::int64_t of_four = 0;
    for (const std::int32_t ranks : {4, 8, 16, 32}) {
      INFO("form " << static_cast<int>(how) << ", " << ranks << " ranks");
      save_on(ranks, how, folder.path / "step");
      std::vector<traffic> counted;
      const auto wrong = on_threads(ranks, counted, -1, never, [&](counting_communicator& comm) {
        return load_on(comm, how, folder.path / "step");
      });
      CHECK(wrong == std::vector<std::string>(wrong.size()));
      const expected_rounds expected = expected_of(how);
      std::int64_t of_others = 0;
      for (const traffic& one : std::span(counted).subspan(1)) {
        CHECK(one.rounds == (ranks <= detail::most_gathered_ranks ? expected.rounds : 0));
        CHECK(one.largest_round <= agreed_bytes);
        CHECK(one.plans == expected.plans);
        // A rank reads one piece of each tensor for three ranks, and gets three, all in one message per peer.
        if (how == held_form::overlapping_rows) CHECK(one.data <= 6);
        if (how == held_form::rows) CHECK(one.data == 0);
        of_others += one.plan_bytes;
      }
      CHECK(counted.front().plans == expected.plans * (ranks - 1));
      CHECK(counted.front().plan_bytes == of_others);
      const std::int64_t most = most_of_others(counted, &traffic::plan_bytes);
      CHECK(most < 250 * tensors);
      if (ranks == 4) of_four = most;
      // Positions in larger tensors take a byte more, and a rank may read for three others instead of two.
      CHECK(most <= of_four + of_four / 3);
    }
  }
}

TEST_CASE("a rank that dies at any message of a load ends the load on every rank") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("load-deaths");
  constexpr std::int32_t ranks = 4;
  for (const held_form how : {held_form::rows, held_form::overlapping_rows, held_form::whole}) {
    save_on(ranks, how, folder.path / "step");
    for (const std::int32_t victim : {0, ranks - 1}) {
      std::int64_t deaths = 0;
      for (bool has_died = true; has_died; ++deaths) {
        INFO("form " << static_cast<int>(how) << ", rank " << victim << " dies at its call " << deaths);
        std::vector<traffic> counted;
        const auto wrong = on_threads(ranks, counted, victim, deaths, [&](counting_communicator& comm) {
          return load_on(comm, how, folder.path / "step");
        });
        has_died = counted[static_cast<std::size_t>(victim)].calls > deaths;
        if (!has_died) {
          CHECK(wrong == std::vector<std::string>(wrong.size()));
          continue;
        }
        CHECK(wrong[static_cast<std::size_t>(victim)].find("this rank has died") != std::string::npos);
        for (const std::string& text : wrong) CHECK(!text.empty());
      }
      CHECK(deaths > expected_of(how).rounds);
    }
  }
}

TEST_CASE("a rank whose copy of the checkpoint is damaged fails the load on every rank, and is named") {
  const watchdog dog(300s);
  const fabric::rank_folder folder("load-copies");
  constexpr std::int32_t ranks = 4;
  for (const held_form how : {held_form::rows, held_form::overlapping_rows, held_form::whole}) {
    INFO("form " << static_cast<int>(how));
    save_on(ranks, how, folder.path / "step");
    fs::remove_all(folder.path / "copy");
    fs::copy(folder.path / "step", folder.path / "copy", fs::copy_options::recursive);
    for (const fs::directory_entry& file : fs::directory_iterator(folder.path / "copy"))
      if (file.path().extension() == ".distcp") fs::resize_file(file.path(), 10);
    std::vector<traffic> counted;
    const auto wrong = on_threads(ranks, counted, -1, never, [&](counting_communicator& comm) {
      return load_on(comm, how, folder.path / (comm.rank() == 2 ? "copy" : "step"), true);
    });
    for (const std::string& text : wrong) {
      INFO(text);
      CHECK(text.find(".distcp") != std::string::npos);
      CHECK(text.find("rank 2") != std::string::npos);
      CHECK(text == wrong.front());
    }
  }
}
