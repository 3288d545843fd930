// SPDX-License-Identifier: Apache-2.0
// Tests the costs of plans: counted cell by cell from holders and receivers, and as text.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

distribution on(const char* mesh, const char* placements, const extents& shape) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
      .value();
}

using pair_bytes = std::map<std::pair<owner_id, owner_id>, std::int64_t>;

// The planner's rule, cell by cell. A receiver that holds the cell copies its own; the i-th of the others takes it from
// holder i mod k.
pair_bytes brute_force(const std::vector<tensor_transfer>& transfers, std::int64_t item) {
  pair_bytes bytes;
  for (const tensor_transfer& t : transfers) {
    const auto held = fragments::all_of(t.from), wanted = fragments::all_of(t.to);
    const extents& shape = t.from.global_shape();
    for (std::int64_t row = 0; row < shape[0]; ++row)
      for (std::int64_t column = 0; column < shape[1]; ++column) {
        const auto owners = [&](const std::vector<fragment>& all) {
          std::vector<owner_id> found;
          for (const fragment& f : all)
            if (lies_within({{row, column}, {1, 1}}, f.where)) found.push_back(f.owner);
          std::sort(found.begin(), found.end());
          return found;
        };
        const std::vector<owner_id> holders = owners(held);
        std::vector<owner_id> receivers = owners(wanted);
        std::erase_if(receivers, [&](owner_id r) { return std::ranges::find(holders, r) != holders.end(); });
        for (std::size_t i = 0; i < receivers.size(); ++i) bytes[{holders[i % holders.size()], receivers[i]}] += item;
      }
  }
  return bytes;
}

std::vector<tensor_transfer> some_transfers() {
  std::vector<tensor_transfer> made;
  for (const auto& [from, to] : {std::pair{"S(0),R", "R,S(1)"}, std::pair{"S(0),S(1)", "S(1),S(0)"},
                                 std::pair{"S(1),R", "R,R"}, std::pair{"S(0),R", "R,S(1)"}})
    made.push_back({on("2,3", from, {13, 10}), on("2,3", to, {13, 10}), dtype::float32, dtype::float32});
  return made;
}

}  // namespace

TEST_CASE("bytes between any two owners are those counted cell by cell, also when threads ask together") {
  const auto transfers = some_transfers();
  const transfer_plan planned = plan(transfers).value();
  const pair_bytes expected = brute_force(transfers, 4);
  REQUIRE(expected.size() > 10);
  const auto asked = [&] {
    pair_bytes found;
    for (owner_id to = -1; to < 8; ++to)
      for (owner_id from = 0; from < 8; ++from)
        if (const std::int64_t bytes = planned.bytes(from, to); bytes != 0) found[{from, to}] = bytes;
    return found;
  };
  std::vector<pair_bytes> all(4);
  {
    std::vector<std::jthread> threads;
    for (pair_bytes& mine : all) threads.emplace_back([&] { mine = asked(); });
  }
  for (const pair_bytes& mine : all) CHECK(mine == expected);
}

TEST_CASE("the cost of a plan is what its owners send, receive and need") {
  const auto transfers = some_transfers();
  const transfer_plan planned = plan(transfers).value();
  const plan_cost cost = planned.cost();
  pair_bytes links, expected = brute_force(transfers, 4);
  std::map<owner_id, std::int64_t> sent, received;
  std::int64_t moved = 0;
  for (const auto& [pair, bytes] : expected) {
    sent[pair.first] += bytes;
    received[pair.second] += bytes;
    moved += bytes;
  }
  for (const link_cost& link : cost.links) links[{link.from, link.to}] += link.size_bytes;
  CHECK(links == expected);
  CHECK(std::is_sorted(cost.links.begin(), cost.links.end(), [](const link_cost& a, const link_cost& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  }));
  CHECK(cost.bytes_moved == moved);
  CHECK(cost.lower_bound == moved);
  CHECK(cost.bytes_total == planned.bytes_total());
  REQUIRE(cost.owners.size() == 6);
  std::int64_t peak = 0;
  for (owner_id rank = 0; rank < 6; ++rank) {
    const owner_cost& one = cost.owners[static_cast<std::size_t>(rank)];
    CHECK(one == owner_cost{rank, owner_space::ranks, sent[rank], received[rank], one.peak_bytes});
    CHECK(one.peak_bytes == planned.for_owner(rank).peak_bytes());
    peak = std::max(peak, one.peak_bytes);
  }
  CHECK(cost.peak_bytes == peak);
}

TEST_CASE("a plan is told in some lines") {
  const auto one = plan({{on("2", "S(0)", {4, 6}), on("2", "S(1)", {4, 6}), dtype::float32, dtype::bfloat16}},
                        {.allow_narrowing = true});
  // Each rank keeps 2 x 3 elements and sends as many, of two bytes each.
  CHECK(to_string(one.value()) ==
        "1 transfer: 48 bytes copied, 24 bytes of it between owners (the least possible: 24 bytes), at most 24 bytes "
        "of memory beside the "
        "tensors\n"
        "  rank 0: sends 12 bytes (12 bytes to 1), receives 12 bytes, takes 24 bytes\n"
        "  rank 1: sends 12 bytes (12 bytes to 0), receives 12 bytes, takes 24 bytes\n"
        "  transfer 0: float32 [4, 6] as bfloat16, 2 ranks to 2 ranks");
  CHECK(to_string(transfer_plan()) ==
        "0 transfers: 0 bytes copied, 0 bytes of it between owners (the least possible: 0 bytes), at most 0 bytes "
        "of memory beside the "
        "tensors");
}

TEST_CASE("the text of a large plan is cut and does not count every copy") {
  std::vector<tensor_transfer> transfers;
  for (std::int64_t i = 0; i < 100; ++i)
    transfers.push_back({on("40", "S(0)", {80 + i, 80}), on("40", "S(1)", {80 + i, 80}), dtype::int8, dtype::int8});
  const std::string text = to_string(plan(transfers).value());
  CHECK(std::count(text.begin(), text.end(), '\n') == 16 + 1 + 8 + 1);
  CHECK(text.find("and 35 more)") != std::string::npos);  // 39 peers, of which only the 4 busiest are named
  CHECK(text.find("\n  and 24 owners more") != std::string::npos);
  CHECK(text.find("\n  and 92 transfers more") != std::string::npos);
  const auto huge =
      plan({{on("4096", "S(0)", {8192, 8192}), on("4096", "S(1)", {8192, 8192}), dtype::int8, dtype::int8}});
  // 8192 x 8192 cells, of which each rank already has 2 x 2.
  CHECK(to_string(huge.value()).starts_with("1 transfer: at least 64 MiB travel between owners\n"));
}
