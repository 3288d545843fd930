// SPDX-License-Identifier: Apache-2.0
// The shape of the tree of ranks, the waits that name a missing rank, and the messages along the tree.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;
using detail::rank_tree;

namespace {

constexpr std::int32_t sizes[] = {1, 2, 3, 4, 5, 6, 20, 21, 22, 85, 86, 500};

// Returns whether `rank` is on the way from `below` to the root, below itself excluded.
bool is_above(std::int32_t rank, std::int32_t below, std::int32_t size) {
  while (below != 0) {
    below = rank_tree{below, size}.parent();
    if (below == rank) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every rank but 0 is a child of its parent alone, and the levels of a tree follow from its edges") {
  for (const std::int32_t size : sizes) {
    INFO(size << " ranks");
    std::vector<std::int32_t> parents(static_cast<std::size_t>(size), -1), depths(parents), heights(parents);
    depths[0] = 0;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      const rank_tree at{rank, size};
      CHECK(std::ssize(at.children()) <= rank_tree::fan_out);
      for (const std::int32_t child : at.children()) {
        REQUIRE(child > rank);
        REQUIRE(child < size);
        CHECK(parents[static_cast<std::size_t>(child)] == -1);
        parents[static_cast<std::size_t>(child)] = rank;
        depths[static_cast<std::size_t>(child)] = depths[static_cast<std::size_t>(rank)] + 1;
      }
    }
    for (std::int32_t rank = size - 1; rank >= 0; --rank) {
      const rank_tree at{rank, size};
      const auto place = static_cast<std::size_t>(rank);
      heights[place] = 0;
      for (const std::int32_t child : at.children())
        heights[place] = std::max(heights[place], 1 + heights[static_cast<std::size_t>(child)]);
      CHECK(at.is_root() == (rank == 0));
      if (rank != 0) CHECK(at.parent() == parents[place]);
      CHECK(at.depth() == depths[place]);
      CHECK(at.height() == heights[place]);
    }
  }
}

TEST_CASE("the numbers of ranks in a tree do not overflow") {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  const rank_tree last{most - 1, most};
  CHECK(last.children().empty());
  CHECK(last.height() == 0);
  CHECK(last.depth() == rank_tree{0, most}.height());
  CHECK(rank_tree{(most - 2) / rank_tree::fan_out, most}.children().back() == most - 1);
}

TEST_CASE("if a rank does not arrive, a neighbour of it is the first whose wait ends") {
  for (const std::int32_t size : sizes)
    for (std::int32_t missing = 0; missing < size && size > 1; ++missing) {
      std::int32_t least = std::numeric_limits<std::int32_t>::max();
      std::set<std::int32_t> first;
      for (std::int32_t rank = 0; rank < size; ++rank) {
        if (rank == missing) continue;
        const rank_tree at{rank, size};
        const std::int32_t patience =
            is_above(rank, missing, size) ? at.patience_with_children() : at.patience_with_parent();
        CHECK(patience >= 0);
        if (patience < least) first.clear();
        least = std::min(least, patience);
        if (patience == least) first.insert(rank);
      }
      INFO("rank " << missing << " of " << size << " is missing");
      const rank_tree gone{missing, size};
      if (missing != 0) {
        CHECK(first == std::set<std::int32_t>{gone.parent()});
      } else {
        const std::vector<std::int32_t> children = gone.children();
        CHECK(first == std::set<std::int32_t>(children.begin(), children.end()));
      }
    }
}

TEST_CASE("a hundred thousand ranks wait for each other at most half a second beyond the deadline") {
  constexpr std::int32_t ranks = 100'000;
  CHECK(rank_tree{ranks - 1, ranks}.patience_with_parent() * 20ms < 500ms);
}

TEST_CASE("messages along the tree arrive as they were sent, also empty ones") {
  const watchdog dog(60s);
  for (const std::int32_t size : {1, 2, 5, 6, 23}) {
    INFO(size << " ranks");
    const auto ran = run_ranks(size, [&](any_communicator& comm) -> result<void> {
      const auto bytes_of = [](std::int32_t rank) {
        return std::vector<std::byte>(static_cast<std::size_t>(rank % 3), static_cast<std::byte>(rank));
      };
      const detail::tree_messages tree(comm, {});
      const auto below = tree.receive_any_from_children();
      if (!below) return below.error();
      for (std::size_t i = 0; i < below->size(); ++i)
        if ((*below)[i] != bytes_of(tree.children()[i])) return fail(errc::checksum_mismatch, "another message");
      if (auto sent = tree.send_any_to_parent(bytes_of(comm.rank())); !sent) return sent;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1000}}) {
        const auto told = tree.broadcast(std::vector<std::byte>(comm.rank() == 0 ? count : 5));
        if (!told) return told.error();
        if (*told != std::vector<std::byte>(count)) return fail(errc::checksum_mismatch, "another broadcast");
      }
      for (std::int32_t from = 0; from < comm.size(); ++from) {
        const auto brought = tree.bring_to_root(from, bytes_of(comm.rank()));
        if (!brought) return brought.error();
        if (*brought != (comm.rank() == 0 ? bytes_of(from) : bytes_of(0)))
          return fail(errc::checksum_mismatch, "other bytes were brought");
      }
      return {};
    });
    INFO((ran ? "" : to_string(ran.error())));
    CHECK(ran);
  }
}

TEST_CASE("a size that no message can have is an error that names the sender, and ends the waits of all") {
  const watchdog dog(30s);
  std::vector<std::optional<error>> got(2);
  static_cast<void>(run_ranks(2, [&](any_communicator& comm) -> result<void> {
    const auto place = static_cast<std::size_t>(comm.rank());
    if (comm.rank() == 0) {
      const std::int32_t sender = 1;
      const auto received = detail::receive_sized(comm, {&sender, 1}, {});
      if (!received) got[place] = received.error();
      return {};
    }
    const std::vector<std::byte> size(8, std::byte{0xFF}), body(8);
    const outgoing header{0, size}, message{0, body};
    for (const outgoing* const one : {&header, &message})
      if (const auto sent = detail::move_messages(comm, {one, 1}, {}, {}); !sent) got[place] = sent.error();
    return {};
  }));
  for (const std::optional<error>& one : got) {
    REQUIRE(one.has_value());
    CHECK(one->code == errc::bad_format);
    CHECK(one->message == "a rank announces a message of an impossible size");
    CHECK(one->ranks == std::vector<std::int32_t>{1});
    CHECK(one->found == "18446744073709551615 bytes");
  }
}
