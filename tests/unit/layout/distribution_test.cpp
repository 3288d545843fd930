// SPDX-License-Identifier: Apache-2.0
// Tests lists of fragments, their algebra, terms, and large meshes. golden_test.cpp compares grids with lists.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cpu_time.hpp>
#include <cstdint>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {

fragment piece(owner_id owner, const extents& offsets, const extents& sizes, std::int32_t term = 0,
               std::int32_t slot = 0) {
  fragment f;
  f.where = {offsets, sizes};
  f.owner = owner;
  f.slot = slot;
  f.term = term;
  f.local_offsets = extents::filled(sizes.rank(), 0);
  return f;
}

std::vector<fragment> all(const distribution& d) {
  std::vector<fragment> found;
  d.for_each_owner([&](owner_id o) { d.fragments_of(o, [&](const fragment& f) { return found.push_back(f), true; }); });
  return found;
}

distribution list(const extents& shape, const std::vector<fragment>& fragments, reduce_op op = reduce_op::none) {
  return distribution::from_fragments(shape, fragments, owner_space::ranks, op).value();
}

double seconds_since(double start) {
  return cpu_seconds() - start;
}

}  // namespace

TEST_CASE("the digest ignores the order of fragments and nothing else") {
  std::vector<fragment> fragments{piece(0, {0}, {2}), piece(1, {2}, {2}), piece(1, {0}, {2}, 0, 1)};
  const auto first = list({4}, fragments).digest();
  std::reverse(fragments.begin(), fragments.end());
  CHECK(list({4}, fragments).digest() == first);
  fragments[0].slot = 2;
  CHECK(list({4}, fragments).digest() != first);
  CHECK(distribution::from_fragments({4}, std::vector{piece(0, {0}, {4})}, owner_space::items).value().digest() !=
        distribution::from_fragments({4}, std::vector{piece(0, {0}, {4})}, owner_space::ranks).value().digest());
}

TEST_CASE("fragments that make no sense are refused") {
  const auto code = [](const fragment& f, reduce_op op = reduce_op::none) {
    const auto made = distribution::from_fragments({4}, std::vector{f}, owner_space::ranks, op);
    return made ? errc::ok : made.error().code;
  };
  CHECK(code(piece(0, {0}, {4})) == errc::ok);
  CHECK(code(piece(-1, {0}, {4})) == errc::invalid_argument);
  CHECK(code(piece(0, {0, 0}, {4, 1})) == errc::shape_mismatch);
  CHECK(code(piece(0, {-1}, {2})) == errc::out_of_bounds);
  CHECK(code(piece(0, {1}, {4})) == errc::out_of_bounds);
  CHECK(code(piece(0, {INT64_MAX}, {INT64_MAX})) == errc::out_of_bounds);
  CHECK(code(piece(0, {0}, {4}, 1)) == errc::invalid_argument);
  CHECK(code(piece(0, {0}, {4}, 1), reduce_op::sum) == errc::ok);
}

TEST_CASE("embed puts a distribution into one fragment of another") {
  const auto outer = list({4, 6}, {piece(0, {0, 0}, {4, 3}), piece(1, {0, 3}, {4, 3})});
  const auto inner = list({4, 3}, {piece(1, {0, 0}, {2, 3}), piece(2, {2, 0}, {2, 3})});
  const auto both = embed(outer, 1, inner).value();
  CHECK(both == list({4, 6}, {piece(0, {0, 0}, {4, 3}), piece(1, {0, 3}, {2, 3}), piece(2, {2, 3}, {2, 3})}));
  CHECK(embed(outer, 1, 0, {0, 3}, inner).value() == both);
  CHECK(embed(outer, 2, inner).error().code == errc::out_of_bounds);
  CHECK(embed(outer, 0, list({4, 2}, {})).error().code == errc::shape_mismatch);
}

TEST_CASE("merge, rename and deduplicate") {
  const auto a = list({4}, {piece(0, {0}, {2})}), b = list({4}, {piece(1, {2}, {2})});
  const std::vector<distribution> parts{a, b};
  const auto both = merge(parts).value();
  CHECK(check_cover(both).ok());
  CHECK(both.owners() == 2);
  const std::vector<distribution> wrong{a, list({5}, {})};
  CHECK(merge(wrong).error().code == errc::shape_mismatch);
  const auto averaged = [](std::int64_t divisor) {
    distribution_builder builder({4}, owner_space::ranks, reduce_op::avg, divisor);
    builder.add(piece(0, {0}, {4}));
    return builder.finish().value();
  };
  const std::vector<distribution> averages{averaged(2), averaged(3)};
  const error unlike = merge(averages).error();
  CHECK(unlike.code == errc::mixed_partial);
  CHECK(unlike.expected == "avg over 2");
  CHECK(unlike.found == "avg over 3");
  CHECK(merge(std::vector{averages[1], averages[1]}).value().divisor() == 3);

  const std::vector<owner_id> names{7, 3};
  CHECK(rename_owners(both, names).value() == list({4}, {piece(7, {0}, {2}), piece(3, {2}, {2})}));
  CHECK(rename_owners(both, std::vector<owner_id>{7}).error().ranks == std::vector<std::int32_t>{1});

  // Three replicas of three boxes: rank 0 must keep its own box, the others are spread over the least loaded ranks.
  std::vector<fragment> replicas{piece(0, {0}, {10})};
  for (owner_id r = 0; r < 3; ++r)
    for (const std::int64_t begin : {10, 12, 14}) replicas.push_back(piece(r, {begin}, {2}));
  const auto one_each = deduplicate(list({16}, replicas)).value();
  CHECK(check_cover(one_each).ok());
  CHECK(one_each == [&] {
    distribution_builder builder({16}, owner_space::ranks);
    for (const fragment& f : {piece(0, {0}, {10}), piece(1, {10}, {2}), piece(2, {12}, {2}), piece(1, {14}, {2})})
      builder.add(f);
    return builder.finish().value();
  }());
}

TEST_CASE("partial dimensions give terms, replicated ones replicas") {
  const auto l =
      layout::make(parse_mesh("2,3,2").value(),
                   {placement::partial(reduce_op::sum), placement::shard(0), placement::partial(reduce_op::sum)}, {6})
          .value();
  const auto d = distribute(l).value();
  CHECK(d.terms() == 4);
  CHECK(d.reduction() == reduce_op::sum);
  for (const fragment& f : all(d)) {
    const auto c = *l.mesh().coordinate_of(f.owner);
    CHECK(f.term == c[0] * 2 + c[2]);
  }
  CHECK(check_cover(list({6}, all(d), reduce_op::sum)).ok());
}

TEST_CASE("a mesh of a million ranks is asked for what is near a box, not walked through") {
  const double start = cpu_seconds();
  for (const char* placements : {"S(0),S(1)", "S(0),S(0)", "SS(0,1024),S(0)", "S(1),R", "SG(0,4194300:4),S(1)"}) {
    const auto d = distribute(layout::make(parse_mesh("1024,1024").value(), parse_placements(placements).value(),
                                           {1 << 22, 1 << 20})
                                  .value())
                       .value();
    std::int64_t found = 0;
    for (int i = 0; i < 100; ++i)
      d.overlapping({{4096 * i, 1024 * i}, {1, 1}},
                    [&](const fragment& f) { return found += f.where.volume() > 0 ? 1 : 0, true; });
    CHECK(found == (std::string(placements) == "S(1),R" ? 102400 : 100));
    d.fragments_of(777'777, [&](const fragment& f) {
      CHECK(f.owner == 777'777);
      return true;
    });
    // Four coordinates also hold a row of the second segment.
    CHECK(d.fragment_count() == (std::string(placements).starts_with("SG") ? 1028 << 10 : 1 << 20));
  }
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("two million fragments build in seconds and answer at once") {
  constexpr std::int64_t rows = 2000, columns = 1000;
  distribution_builder builder({rows * 2, columns * 3}, owner_space::ranks);
  builder.reserve(rows * columns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t offsets[] = {r * 2, c * 3}, sizes[] = {2, 3};
      builder.add(static_cast<owner_id>((r * 31 + c) % 512), 0, offsets, sizes);
    }
  const double start = cpu_seconds();
  const auto d = builder.finish().value();
  const double built = seconds_since(start);
  const double query = cpu_seconds();
  std::int64_t found = 0;
  for (int i = 0; i < 100'000; ++i)
    d.overlapping({{(i * 37) % (rows * 2), (i * 101) % (columns * 3)}, {1, 1}},
                  [&](const fragment&) { return ++found, true; });
  WARN(built << " s to build, " << seconds_since(query) * 10 << " us a query");
  CHECK(found == 100'000);
  CHECK(built < 20);
  CHECK(seconds_since(query) < 5);
}

TEST_CASE("queries of random lists find what a scan finds") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 50; ++round) {
    const extents shape{1 + below(200), 1 + below(200)};
    std::vector<fragment> fragments;
    for (std::int64_t n = below(400); n > 0; --n) {
      const std::int64_t r = below(shape[0]), c = below(shape[1]);
      fragments.push_back(piece(static_cast<owner_id>(below(9)), {r, c},
                                {below(shape[0] - r + 1), below(shape[1] - c + 1)}, 0, static_cast<std::int32_t>(n)));
    }
    const auto d = list(shape, fragments);
    for (int q = 0; q < 20; ++q) {
      const std::int64_t r = below(shape[0]), c = below(shape[1]);
      const box where{{r, c}, {below(shape[0] - r + 1), below(shape[1] - c + 1)}};
      std::int64_t expected = 0, found = 0;
      for (const fragment& f : fragments)
        expected += !f.where.is_empty() && !where.is_empty() && intersect(f.where, where) ? 1 : 0;
      owner_id last = 0;
      d.overlapping(where, [&](const fragment& f) {
        REQUIRE(f.owner >= last);
        last = f.owner;
        return ++found, true;
      });
      REQUIRE(found == expected);
    }
  }
}
