// SPDX-License-Identifier: Apache-2.0
// Tests device streams and reductions without memory in thread groups, how often an agreement copies notes, and that
// the guard of a valid call allocates nothing.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <counted_new.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;

TEST_CASE("a call with a device stream is refused by threads, and nothing is started") {
  const watchdog dog(30s);
  int queue = 0;
  const auto ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    const call_options streamed{.stream = {&queue}};
    std::byte mine{1}, theirs{0};
    const outgoing send{1 - comm.rank(), {&mine, 1}};
    const incoming receive{1 - comm.rank(), {&theirs, 1}};
    std::vector<error> said;
    if (auto done = comm.all_gather({&mine, 1}, streamed); !done) said.push_back(done.error());
    if (auto done = comm.start_exchange({&send, 1}, {&receive, 1}, streamed); !done) said.push_back(done.error());
    if (auto done = comm.start_lending({}, {}, streamed); !done) said.push_back(done.error());
    if (said.size() != 3) return fail(errc::invalid_argument, "a stream was taken");
    for (const error& e : said)
      if (e.code != errc::unsupported || e.ranks != std::vector<std::int32_t>{comm.rank()} ||
          e.message.find("stream") == std::string::npos)
        return e;
    auto exchange = comm.start_exchange({&send, 1}, {&receive, 1}, {});
    if (!exchange) return std::move(exchange).error();
    if (auto done = exchange->wait(); !done) return done;
    return theirs == std::byte{1} ? result<void>() : fail(errc::checksum_mismatch, "other bytes came");
  });
  INFO((ran ? "" : to_string(ran.error())));
  CHECK(ran);
}

TEST_CASE("a rank without memory for the terms of a reduction does not leave the others waiting") {
  const watchdog dog(30s);
  std::optional<error> first, second;
  run_ranks(2, [&](any_communicator& comm) -> result<void> {
    std::byte one{};
    if (comm.rank() == 0) {
      // More memory than any machine has; none of it is accessed.
      const std::span<std::byte> all(&one, (std::size_t{1} << 63) - 4);
      const auto done = comm.all_reduce(all, all, dtype::float32, reduce_op::sum, {});
      if (!done) first = done.error();
    } else {
      const auto done = comm.all_gather({&one, 1}, {});
      if (!done) second = done.error();
    }
    return {};
  }).value();
  REQUIRE(first);
  CHECK(first->code == errc::no_memory);
  CHECK(first->ranks == std::vector<std::int32_t>{0});
  REQUIRE(second);
  CHECK(*second == *first);
}

TEST_CASE("an agreement copies each rank's note a few times, not once per rank") {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  const watchdog dog(60s);
  constexpr std::int32_t ranks = 16;
  constexpr std::size_t note_bytes = std::size_t{1} << 20;
  std::vector<std::size_t> taken(ranks);
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    agree_options options;
    if (comm.rank() == 0) options.note.resize(note_bytes);
    const std::int64_t before = counted_new::bytes;
    auto notes = agree(comm, std::span<const agreement_record>(), options);
    taken[static_cast<std::size_t>(comm.rank())] = static_cast<std::size_t>(counted_new::bytes - before);
    if (!notes) return std::move(notes).error();
    return (*notes)[0].size() == note_bytes ? result<void>() : fail(errc::checksum_mismatch, "another note");
  });
  CHECK(ran);
  // Copies for the send, the receive, and the caller, but not sixteen.
  for (const std::size_t bytes : taken) CHECK(bytes < 6 * note_bytes);
}

TEST_CASE("the guard of a valid call allocates nothing") {
  SKIP_WHERE_NOTHING_IS_COUNTED();
  const std::stop_source stop;
  call_options options;
  options.within = 1h;
  options.cancel = stop.get_token();
  std::optional<error> poison;
  const std::int64_t before = counted_new::calls;
  const auto begun =
      detail::begin_call({1, "an exchange", "a call with a name of many characters", 3}, options,
                         detail::stream_policy::refused, poison, [&](error reason) { poison = std::move(reason); });
  const bool goes_on = begun && begun->reached() == errc::ok && detail::check_limits(options, "load");
  const std::int64_t taken = counted_new::calls - before;
  CHECK(goes_on);
  CHECK(taken == 0);
}
