// SPDX-License-Identifier: Apache-2.0
// Tests the guard that all transports share: which calls must not start, and the errors of calls that a limit ends.
// refusals_test counts its allocations.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;
using detail::stream_policy;

namespace {

using clock_type = std::chrono::steady_clock;

const detail::call_identity call{1, "an exchange", "save", 3};

// The state of a transport.
struct transport {
  std::optional<error> poison;
  result<detail::call_limits> begin(const call_options& options, stream_policy streams = stream_policy::refused) {
    return detail::begin_call(call, options, streams, poison, [&](error reason) { poison = std::move(reason); });
  }
};

// The limits of a call that began some time ago.
detail::call_limits since(clock_type::duration ago) {
  detail::call_limits made;
  made.began = clock_type::now() - ago;
  made.deadline = made.began;
  return made;
}

// The message of a deadline with the time waited left out, which follows "timed out after ".
std::string without_time(const error& e) {
  const std::string begin = "rank 1 timed out after ";
  const std::size_t end = e.message.find(" waiting for ");
  if (!e.message.starts_with(begin) || end == std::string::npos) return e.message;
  return begin + "..." + e.message.substr(end);
}

}  // namespace

TEST_CASE("a call that may start gets its limits, and poisons nothing") {
  transport t;
  std::stop_source stop;
  call_options options;
  options.within = 1h;
  options.cancel = stop.get_token();
  const auto begun = t.begin(options);
  REQUIRE(begun);
  CHECK(begun->deadline == options.within);
  CHECK(begun->began < *options.within);
  CHECK(begun->reached() == errc::ok);
  stop.request_stop();
  CHECK(begun->reached() == errc::cancelled);
  CHECK_FALSE(t.poison);
}

TEST_CASE("a call on a poisoned transport gets the poison, whatever its own limits are") {
  transport t;
  t.poison = fail(errc::no_space, "the disk is full").with_rank(2);
  const error poison = *t.poison;
  call_options options;
  options.within = clock_type::time_point{};
  int queue = 0;
  options.stream.handle = &queue;
  CHECK(t.begin(options).error() == poison);
  CHECK(t.poison == poison);
}

TEST_CASE("a stream is refused where memory is the host's, which poisons nothing") {
  transport t;
  int queue = 0;
  call_options options;
  options.stream.handle = &queue;
  const auto refused = t.begin(options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(to_string(refused.error()) ==
        "rank 1 passes a device stream to an exchange of save (tag 3), which works on host memory (rank 1); pass no "
        "stream");
  CHECK_FALSE(t.poison);
  CHECK(t.begin(options, stream_policy::taken));
}

TEST_CASE("a call that is cancelled or too late before it starts poisons the transport") {
  transport cancelled;
  std::stop_source stop;
  stop.request_stop();
  call_options options;
  options.cancel = stop.get_token();
  options.within = clock_type::now();
  CHECK(cancelled.begin(options).error().code == errc::cancelled);
  REQUIRE(cancelled.poison);
  CHECK(to_string(*cancelled.poison) == "rank 1 was cancelled before an exchange of save (tag 3) (rank 1)");

  transport late;
  options.cancel = {};
  CHECK(late.begin(options).error().code == errc::deadline_exceeded);
  REQUIRE(late.poison);
  CHECK(to_string(*late.poison) == "the deadline of rank 1 had passed before an exchange of save (tag 3) (rank 1)");
}

TEST_CASE("a call that is too late gets another rank's earlier error, if the transport knows one") {
  std::optional<error> poison;
  const error earlier = fail(errc::no_space, "the disk is full").with_rank(2);
  call_options options;
  options.within = clock_type::time_point{};
  const auto begun =
      detail::begin_call(call, options, stream_policy::refused, poison, [&](error) { poison = earlier; });
  CHECK(begun.error() == earlier);
}

TEST_CASE("the error of a wait that was cancelled names the call") {
  const error e = detail::ended_wait(call, since(1s), errc::cancelled, {0}, {2});
  CHECK(e.code == errc::cancelled);
  CHECK(to_string(e) == "rank 1 was cancelled in an exchange of save (tag 3) (rank 1)");
}

TEST_CASE("the error of a deadline names the operation, the peers, the tag, and the time waited") {
  const auto waited = [](std::vector<std::int32_t> senders, std::vector<std::int32_t> takers) {
    return detail::ended_wait(call, since(2s), errc::deadline_exceeded, std::move(senders), std::move(takers));
  };
  const error both = waited({3, 0}, {2, 0});
  CHECK(both.code == errc::deadline_exceeded);
  CHECK(both.message.starts_with("rank 1 timed out after 2"));
  CHECK(both.message.find(" s waiting for ") != std::string::npos);
  CHECK(both.ranks == std::vector<std::int32_t>{0, 2, 3});
  CHECK(without_time(both) ==
        "rank 1 timed out after ... waiting for messages from ranks 0, 3, and for ranks 0, 2 to receive its own in an "
        "exchange of save (tag 3)");
  CHECK(without_time(waited({2}, {})) ==
        "rank 1 timed out after ... waiting for messages from rank 2 in an exchange of save (tag 3)");
  CHECK(without_time(waited({}, {2})) ==
        "rank 1 timed out after ... waiting for rank 2 to receive its messages in an exchange of save (tag 3)");
  const error unknown = waited({}, {});
  CHECK(without_time(unknown) == "rank 1 timed out after ... waiting for other ranks in an exchange of save (tag 3)");
  CHECK(unknown.ranks.empty());
}

TEST_CASE("a call without a name, and many peers, have short texts") {
  std::vector<std::int32_t> many;
  for (std::int32_t rank = 2; rank < 22; ++rank) many.push_back(rank);
  const error e = detail::ended_wait({1, "an all_gather", {}, 0}, since(1ms), errc::deadline_exceeded, many);
  CHECK(
      without_time(e) ==
      "rank 1 timed out after ... waiting for messages from ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, "
      "17 and 4 more in an all_gather (tag 0)");
  CHECK(e.ranks == many);
}

TEST_CASE("a limit that is reached between two pieces of a rank's own work names the call") {
  CHECK(to_string(detail::ended_within(call, errc::cancelled)) ==
        "rank 1 was cancelled in an exchange of save (tag 3) (rank 1)");
  CHECK(to_string(detail::ended_within(call, errc::deadline_exceeded)) ==
        "the deadline of rank 1 has passed in an exchange of save (tag 3) (rank 1)");
}
