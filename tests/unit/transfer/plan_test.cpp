// SPDX-License-Identifier: Apache-2.0
// Tests plans of lists and of many ranks, errors, and budgets. plan_property_test.cpp tests the rules themselves.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cpu_time.hpp>
#include <cstdint>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;
using nlohmann::json;

namespace {

distribution grid(const char* mesh, const char* placements, const extents& shape) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
      .value();
}

fragment piece(owner_id owner, const extents& offsets, const extents& sizes) {
  fragment f;
  f.where = {offsets, sizes};
  f.owner = owner;
  f.local_offsets = extents::filled(sizes.rank(), 0);
  return f;
}

distribution list(const extents& shape, const std::vector<fragment>& fragments,
                  owner_space space = owner_space::ranks) {
  return distribution::from_fragments(shape, fragments, space).value();
}

error plan_error(const distribution& from, const distribution& to, dtype a = dtype::float32, dtype b = dtype::float32,
                 plan_options options = {}) {
  const auto planned = plan({{from, to, a, b}}, options);
  REQUIRE(!planned);
  return planned.error();
}

double seconds_since(double start) {
  return cpu_seconds() - start;
}

}  // namespace

TEST_CASE("receivers take turns between the holders of a cell") {
  // Ranks 0 and 1 hold everything; 2, 3, and 4 want it.
  const auto from = list({4}, {piece(0, {0}, {4}), piece(1, {0}, {4})});
  const auto to = list({4}, {piece(2, {0}, {4}), piece(3, {0}, {4}), piece(4, {0}, {4}), piece(1, {0}, {4})});
  const auto planned = plan({{from, to, dtype::float32, dtype::float32}}).value();
  CHECK(planned.bytes(0, 2) == 16);
  CHECK(planned.bytes(1, 3) == 16);
  CHECK(planned.bytes(0, 4) == 16);
  CHECK(planned.bytes_moved() == 48);
  CHECK(planned.bytes_total() == 64);
  CHECK(planned.for_owner(1).part(0).local_bytes == 16);
}

TEST_CASE("a cell that nobody holds is an error that names its box") {
  const auto from = list({6, 2}, {piece(0, {0, 0}, {2, 2}), piece(1, {3, 0}, {3, 2})});
  const error e = plan_error(from, grid("2", "S(0)", {6, 2}));
  CHECK(e.code == errc::gap);
  CHECK(to_string(e).find("[2:3, 0:2)") != std::string::npos);
  // Elements that no rank wants may be missing.
  CHECK(plan({{from, list({6, 2}, {piece(0, {4, 0}, {1, 1})}), dtype::float32, dtype::float32}}).has_value());
}

TEST_CASE("overlapping sources and destinations, shapes and casts are refused with names") {
  const auto overlapping = list({4}, {piece(0, {0}, {3}), piece(7, {2}, {2})});
  const error e = plan_error(overlapping, grid("2", "R", {4}));
  CHECK(e.code == errc::overlap);
  CHECK(to_string(e).find("ranks 0 and 7 overlap in [2:3)") != std::string::npos);
  CHECK(plan_error(grid("2", "R", {4}), overlapping).code == errc::overlap);
  CHECK(plan_error(grid("2", "R", {4}), grid("2", "R", {5})).code == errc::shape_mismatch);
  CHECK(plan_error(grid("2", "R", {4}), grid("2", "R", {4}), dtype::float32, dtype::bfloat16).code == errc::narrowing);
  CHECK(plan_error(grid("2", "S(0)", {6}), grid("2", "R", {6}), dtype::float4_e2m1fn, dtype::float4_e2m1fn).code ==
        errc::unaligned);
  CHECK(plan({{grid("2", "S(0)", {8}), grid("2", "R", {8}), dtype::float4_e2m1fn, dtype::float4_e2m1fn}})
            .value()
            .bytes_moved() == 4);
}

TEST_CASE("the wire carries the smaller type") {
  const auto s = grid("2", "S(0)", {8}), r = grid("2", "R", {8});
  CHECK(plan({{s, r, dtype::float32, dtype::bfloat16}}, {.allow_narrowing = true}).value().bytes_moved() == 2 * 4 * 2);
  CHECK(plan({{s, r, dtype::bfloat16, dtype::float32}}).value().bytes_moved() == 2 * 4 * 2);
}

TEST_CASE("items are read by ranks in turns, and written by one rank") {
  const auto files = list({4}, {piece(0, {0}, {2}), piece(1, {2}, {2})}, owner_space::items);
  const auto load = plan({{files, grid("2", "R", {4}), dtype::float32, dtype::float32}}).value();
  CHECK(load.bytes_moved() == 32);
  CHECK(load.for_owner(0).received_bytes() == 16);
  CHECK(load.for_owner(0).sent_bytes() == 0);
  CHECK(load.for_owner(0, owner_space::items).sent_bytes() == 16);
  const auto save = plan({{grid("2", "S(0)", {4}), files, dtype::float32, dtype::float32}}).value();
  CHECK(save.for_owner(1).sends() == std::vector<peer_traffic>{{1, 1, 8}});
}

TEST_CASE("a memory budget bounds what an owner has in flight, and is exceeded by what cannot be cut") {
  const auto s = grid("2", "S(0)", {8}), r = grid("2", "R", {8});
  const std::vector<tensor_transfer> four(4, {s, r, dtype::float32, dtype::float32});  // each rank: 16 bytes out, 16 in
  CHECK(plan(four).value().for_owner(0).peak_bytes() == 128);
  CHECK(plan(four, {.memory_bytes = 70}).value().for_owner(0).peak_bytes() == 64);
  CHECK(plan(four, {.memory_bytes = 31}).value().for_owner(0).peak_bytes() <= 31);
  CHECK(plan(four, {.memory_bytes = 3}).value().for_owner(0).peak_bytes() == 4);  // one element
}

TEST_CASE("without a budget an owner takes at most a tenth of what it holds and wants, and 64 MiB") {
  const auto check = [](const distribution& from, const distribution& to) {
    const auto planned = plan({{from, to, dtype::float32, dtype::float32}}).value();
    for (const owner_id rank : {0, from.owners() - 1}) {
      const rank_plan mine = planned.for_owner(rank);
      CHECK(mine.peak_bytes() > 0);
      CHECK(mine.peak_bytes() <= (mine.held_bytes() + mine.wanted_bytes()) / 10 + (std::int64_t{64} << 20));
    }
    // A plan without a budget needs much more.
    const auto at_once = plan({{from, to, dtype::float32, dtype::float32}}, {.memory_bytes = unlimited_memory}).value();
    CHECK(at_once.for_owner(0).peak_bytes() > (std::int64_t{256} << 20));
  };
  const extents shape{40'000, 50'000};  // 8 GB
  check(grid("8", "S(0)", shape), grid("8", "S(1)", shape));
  check(grid("8", "S(0)", shape), grid("8", "R", shape));
  check(grid("3", "P(sum)", shape), grid("3", "R", shape));
  check(grid("2,3", "P(sum),S(0)", shape), grid("6", "SS(1,2)", shape));
  check(grid("4", "S(0)", {1'500'000'000}), grid("4", "R", {1'500'000'000}));
}

TEST_CASE("what an owner does is made once") {
  const auto rows = grid("1024", "S(0)", {4096, 8192}), columns = grid("1024", "S(1)", {4096, 8192});
  const auto planned =
      plan(std::vector<tensor_transfer>(1024, {rows, columns, dtype::float32, dtype::float32})).value();
  const auto first = planned.for_owner(511);
  const double start = cpu_seconds();
  const auto again = planned.for_owner(511);
  WARN(1e3 * seconds_since(start) << " ms for a rank that was asked for before");
  CHECK(&first.steps(7) == &again.steps(7));
  CHECK(&first.steps(7) != &planned.for_owner(510).steps(7));
}

TEST_CASE("a plan cache finds what was planned, by distributions, dtypes and options, and forgets the oldest") {
  plan_cache cache(2);
  const auto ask = [&](const distribution& from, const distribution& to, plan_options options = {}) {
    const auto before = cache.hits();
    CHECK(cache.plan({{from, to, dtype::float32, dtype::float32}}, options).has_value());
    return cache.hits() > before;
  };
  const auto s = [] { return grid("2", "S(0)", {8}); };
  const auto r = [] { return grid("2", "R", {8}); };
  CHECK_FALSE(ask(s(), r()));
  CHECK(ask(s(), r()));  // another object with an equal description
  CHECK_FALSE(ask(s(), r(), {.memory_bytes = 100}));
  CHECK(ask(s(), r()));
  CHECK_FALSE(ask(r(), s()));  // the third plan
  CHECK(ask(s(), r()));
  CHECK_FALSE(ask(s(), r(), {.memory_bytes = 100}));
  CHECK(cache.size() == 2);
  // The dtypes of both sides count.
  plan_cache by_types(8);
  for (const dtype a : {dtype::float16, dtype::bfloat16})
    for (const dtype b : {dtype::float32, dtype::float64}) {
      const auto made = by_types.plan({{s(), r(), a, b}}).value();
      CHECK(made.transfers()[0].from_type == a);
      CHECK(made.transfers()[0].to_type == b);
    }
  CHECK(by_types.misses() == 4);
  CHECK(by_types.hits() == 0);
  // A failed plan is not cached.
  CHECK(cache.plan({{s(), grid("2", "R", {9}), dtype::float32, dtype::float32}}).error().code == errc::shape_mismatch);
  CHECK(cache.size() == 2);
  cache.clear();
  CHECK(cache.size() == 0);
}

TEST_CASE("distributions on one rank and on every rank, and shapes that cannot be") {
  const distribution one = on_one_rank({2, 3}, 4).value();
  CHECK(one.owners() == 5);
  CHECK(one.fragment_count() == 1);
  CHECK(on_every_rank({2, 3}, 4).value().fragment_count() == 4);
  CHECK(on_one_rank({2}, -1).error().code == errc::invalid_argument);
  CHECK(on_one_rank({2, -1}, 0).error().code == errc::invalid_argument);
  CHECK(on_one_rank({INT64_MAX, 2}, 0).error().code == errc::overflow);
  CHECK(on_every_rank({2}, 0).error().code == errc::invalid_argument);
}

TEST_CASE("rows to columns over 1024 ranks for 1024 tensors plans one rank in well under a second") {
  std::vector<tensor_transfer> transfers;
  const auto rows = grid("1024", "S(0)", {4096, 8192}), columns = grid("1024", "S(1)", {4096, 8192});
  for (int i = 0; i < 1024; ++i) transfers.push_back({rows, columns, dtype::float32, dtype::float32});
  const double start = cpu_seconds();
  const auto planned = plan(transfers).value();
  const auto mine = planned.for_owner(511);
  const double seconds = seconds_since(start);
  CHECK(mine.steps(0).size() == 1024 + 1023);
  CHECK(mine.received_bytes() == std::int64_t{1024} * 1023 * 4 * 8 * 4);
  CHECK(seconds < 1);
  WARN(seconds << " s for one rank");
}

TEST_CASE("a thousand different tensors plan one rank in about a second") {
  std::vector<tensor_transfer> transfers;
  for (std::int64_t i = 0; i < 1000; ++i)
    transfers.push_back({grid("1024", "S(0)", {4096 + i, 8192}), grid("1024", "S(1)", {4096 + i, 8192}), dtype::float32,
                         dtype::float32});
  const double start = cpu_seconds();
  const auto mine = plan(transfers).value().for_owner(3);
  CHECK(mine.transfers() == 1000);
  WARN(seconds_since(start) << " s for one rank");
  CHECK(seconds_since(start) < 10);
}

TEST_CASE(
    "a thousand different tensors plan one rank of 16,384, its traffic too, without a list of its 33 million copies") {
  constexpr std::int64_t ranks = 16'384;
  std::vector<tensor_transfer> transfers;
  for (std::int64_t i = 0; i < 1000; ++i)
    transfers.push_back({grid("16384", "S(0)", {4 * ranks + i, 8 * ranks}),
                         grid("16384", "S(1)", {4 * ranks + i, 8 * ranks}), dtype::float32, dtype::float32});
  const double start = cpu_seconds();
  const auto mine = plan(transfers).value().for_owner(8191);
  const double planned = seconds_since(start);
  const std::vector<peer_traffic> sends = mine.sends();
  const double listed = seconds_since(start);
  std::size_t size_bytes = 0, steps = 0;
  std::int64_t sent = 0;
  for (std::size_t t = 0; t < mine.transfers(); ++t) {
    size_bytes += mine.steps(t).memory_bytes();
    steps += mine.steps(t).size();
  }
  for (const peer_traffic& one : sends) sent += one.size_bytes;
  CHECK(sends.size() == ranks - 1);
  CHECK(sent == mine.sent_bytes());
  CHECK(steps > 20'000'000);
  CHECK(size_bytes < std::size_t{16} << 20);
  WARN(planned << " s for one rank, " << size_bytes << " bytes for " << steps << " steps; " << listed - planned
               << " s for what it sends to each");
  CHECK(listed < 10);
}

TEST_CASE("the digest depends on what moves, not on how it was described") {
  const auto s = grid("2", "S(0)", {8});
  const auto same = list({8}, {piece(1, {4}, {4}), piece(0, {0}, {4})});
  const auto r = grid("2", "R", {8});
  const auto digest = [](const distribution& a, const distribution& b) {
    return plan({{a, b, dtype::float32, dtype::float32}}).value().digest();
  };
  CHECK(digest(s, r) == digest(same, r));
  CHECK(digest(s, r) != digest(r, s));
}

TEST_CASE("PyTorch's redistribution cases plan at their lower bound") {
  const json& all = golden::file("redistribute.json");
  std::size_t cases = 0;
  const auto run = [&](const layout& from, const layout& to) {
    INFO(to_string(from) << " -> " << to_string(to));
    const auto planned = plan({{distribute(from).value(), distribute(to).value(), dtype::float32, dtype::float32}});
    REQUIRE(planned.has_value());
    REQUIRE(planned->bytes_moved() == planned->lower_bound());
    ++cases;
  };
  for (const json& c : all["same_mesh"])
    run(golden::to_layout(c["mesh"], c["shape"], c["src"]), golden::to_layout(c["mesh"], c["shape"], c["dst"]));
  for (const json& c : all["other_mesh"])
    run(golden::to_layout(c["src_mesh"], c["shape"], c["src"]), golden::to_layout(c["dst_mesh"], c["shape"], c["dst"]));
  CHECK(cases == 300);
}
