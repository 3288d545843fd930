// SPDX-License-Identifier: Apache-2.0
// Tests the checks that transports between processes make on one call. Peers are other ranks of the group, each named
// once, and no message is empty.
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

import shardmesh.comm;

using namespace shardmesh;

namespace {

constexpr std::int32_t me = 1, size = 3;
std::array<std::byte, 4> memory{};

// The error text of messages to these peers, and of messages from them.
std::string said_of_sends(const std::vector<std::int32_t>& peers) {
  std::vector<outgoing> sends;
  for (const std::int32_t peer : peers) sends.push_back({peer, memory});
  const auto done = detail::check_peers(me, size, sends, {});
  if (!done) CHECK(done.error().code == errc::invalid_argument);
  return done ? "" : to_string(done.error());
}
std::string said_of_receives(const std::vector<std::int32_t>& peers) {
  std::vector<incoming> receives;
  for (const std::int32_t peer : peers) receives.push_back({peer, memory});
  const auto done = detail::check_peers(me, size, {}, receives);
  if (!done) CHECK(done.error().code == errc::invalid_argument);
  return done ? "" : to_string(done.error());
}

}  // namespace

TEST_CASE("messages to other ranks of the group, each named once, are taken in any order") {
  for (const std::vector<std::int32_t>& peers : {std::vector<std::int32_t>{}, {0}, {2}, {0, 2}, {2, 0}}) {
    CHECK(said_of_sends(peers).empty());
    CHECK(said_of_receives(peers).empty());
  }
}

TEST_CASE("a peer outside the group, oneself and a peer that is named twice are refused by name") {
  CHECK(said_of_sends({3}) == "rank 1 sends to rank 3, but the group has 3 ranks (rank 3)");
  CHECK(said_of_receives({-1}) == "rank 1 receives from rank -1, but the group has 3 ranks (rank -1)");
  CHECK(said_of_sends({0, 1}) == "rank 1 sends to itself (rank 1)");
  CHECK(said_of_sends({2, 0, 2}) == "rank 1 sends to rank 2 twice in one call (rank 2)");
  CHECK(said_of_receives({0, 0}) == "rank 1 receives from rank 0 twice in one call (rank 0)");
}

TEST_CASE("an empty message is refused, naming its peer") {
  const outgoing send{2, {}};
  const incoming receive{0, {}};
  CHECK(to_string(detail::check_peers(me, size, {&send, 1}, {}).error()) ==
        "rank 1 sends to rank 2, but the message is empty (rank 2)");
  CHECK(to_string(detail::check_peers(me, size, {}, {&receive, 1}).error()) ==
        "rank 1 receives from rank 0, but the message is empty (rank 0)");
}
