// SPDX-License-Identifier: Apache-2.0
// What an agreement costs each of thousands of simulated ranks: neither messages nor bytes grow with the ranks, except
// for notes of all ranks, which take an all_gather.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <sanitized.hpp>
#include <span>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t ballot_bytes = 64, verdict_bytes = 16, header_bytes = 8;

std::vector<std::int32_t> group_sizes() {
  std::vector<std::int32_t> sizes{64, 500};
#ifndef SHARDMESH_TEST_SANITIZED
  sizes.push_back(4096);
#endif
  return sizes;
}

// Every rank agrees once. `make` returns the arguments of a rank; all ranks must have the outcome `expected`, an
// error's text or nothing.
template <class Make>
simulation_report agree_on(std::int32_t ranks, const std::string& expected, const Make& make) {
  std::int32_t others = 0;  // ranks with another outcome; one rank runs at a time
  const auto report = simulate_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    const agree_options options = make(comm.rank());
    const std::vector<agreement_record> records{{"a", options.what}};
    const auto done = agree(comm, records, options);
    if ((done ? "" : done.error().message) != expected) ++others;
    return {};
  });
  CHECK(others == 0);
  return report.value();
}

std::int64_t children_of(std::int32_t rank, std::int32_t ranks) {
  return std::ssize(detail::rank_tree{rank, ranks}.children());
}

// The most bytes that one rank sends and receives.
std::int64_t most_bytes(const simulation_report& report) {
  std::int64_t most = 0;
  for (const rank_traffic& one : report.ranks) most = std::max(most, one.sent_bytes + one.received_bytes);
  return most;
}

}  // namespace

TEST_CASE("an agreement costs a rank one ballot and one verdict per neighbour in the tree") {
  const watchdog dog(300s);
  for (const std::int32_t ranks : group_sizes()) {
    INFO(ranks << " ranks");
    const simulation_report report = agree_on(ranks, "", [](std::int32_t) { return agree_options{}; });
    std::vector<rank_traffic> expected;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t below = children_of(rank, ranks), above = rank == 0 ? 0 : 1;
      rank_traffic one;
      one.sent_messages = one.received_messages = below + above;
      one.sent_bytes = above * ballot_bytes + below * verdict_bytes;
      one.received_bytes = above * verdict_bytes + below * ballot_bytes;
      one.exchanges = above + (below > 0 ? 2 : 0);
      one.finished = report.ranks[static_cast<std::size_t>(rank)].finished;
      expected.push_back(one);
    }
    CHECK(report.ranks == expected);
    // In an all_gather, every rank sends its ballot to all others.
    if (ranks > 1000) CHECK(report.critical_path() < network_model{}.all_gather_time(ranks, 0) / 10);
  }
}

TEST_CASE("rank 0's note costs a rank two messages more per neighbour, and notes of others an all_gather") {
  const watchdog dog(300s);
  constexpr std::int64_t note_bytes = 100;
  for (const std::int32_t ranks : group_sizes()) {
    INFO(ranks << " ranks");
    const auto with_note_of = [&](std::int32_t author) {
      return agree_on(ranks, "", [author](std::int32_t rank) {
        agree_options options;
        if (rank == author) options.note.resize(static_cast<std::size_t>(note_bytes));
        return options;
      });
    };
    const simulation_report of_root = with_note_of(0);
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const rank_traffic& one = of_root.ranks[static_cast<std::size_t>(rank)];
      const std::int64_t below = children_of(rank, ranks), above = rank == 0 ? 0 : 1;
      CHECK(one.all_gathers == 0);
      CHECK(one.sent_messages == 3 * below + above);
      CHECK(one.received_messages == below + 3 * above);
      CHECK(one.received_bytes == below * ballot_bytes + above * (verdict_bytes + header_bytes + note_bytes));
    }
    if (ranks > 1000) continue;  // every rank gets a list of all ranks
    const simulation_report of_other = with_note_of(ranks / 2);
    for (const rank_traffic& one : of_other.ranks) CHECK(one.all_gathers == 1);
  }
}

TEST_CASE("notes of all ranks that are combined cost a rank four messages more per neighbour") {
  const watchdog dog(300s);
  for (const std::int32_t ranks : group_sizes()) {
    INFO(ranks << " ranks");
    const simulation_report report = agree_on(ranks, "", [](std::int32_t rank) {
      agree_options options{.note = {static_cast<std::byte>(rank % 256)}};
      options.combine = [](std::vector<std::byte>& all, std::span<const std::byte> one) {
        all.front() = std::max(all.front(), one.front());
      };
      return options;
    });
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const rank_traffic& one = report.ranks[static_cast<std::size_t>(rank)];
      const std::int64_t below = children_of(rank, ranks), above = rank == 0 ? 0 : 1;
      CHECK(one.all_gathers == 0);
      CHECK(one.sent_messages == 3 * (below + above));
      CHECK(one.received_messages == 3 * (below + above));
      CHECK(one.sent_bytes == above * (ballot_bytes + header_bytes + 1) + below * (verdict_bytes + header_bytes + 1));
    }
  }
}

TEST_CASE("the bytes of an agreement that fails do not grow with the ranks") {
  const watchdog dog(300s);
  std::optional<std::int64_t> of_problem, of_difference;
  for (const std::int32_t ranks : group_sizes()) {
    INFO(ranks << " ranks");
    const error problem = fail(errc::no_space, "the disk is full");
    const simulation_report failed = agree_on(ranks, problem.message, [&](std::int32_t rank) {
      return agree_options{.problem = rank % 7 == 5 ? &problem : nullptr};
    });
    const simulation_report differing = agree_on(
        ranks,
        "ranks disagree on 1 of 1 records: 'a' is records on ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "
        "15 and " +
            std::to_string(ranks - 17) + " more, others on rank 50",
        [](std::int32_t rank) { return agree_options{.what = rank == 50 ? "others" : "records"}; });
    for (const simulation_report* const report : {&failed, &differing})
      for (const rank_traffic& one : report->ranks) CHECK(one.all_gathers == 0);
    // Numbers of more ranks take more digits, and have more runs of consecutive ones.
    if (!of_problem) of_problem = most_bytes(failed);
    CHECK(most_bytes(failed) <= *of_problem + 100);
    if (!of_difference) of_difference = most_bytes(differing);
    CHECK(most_bytes(differing) <= *of_difference + 1000);
  }
}
