// SPDX-License-Identifier: Apache-2.0
// Tests shard_segments: literal boxes of a fused tensor, and random compositions of all placements against a model. In
// the model, a rank holds a list of indices per dimension, and every mesh dimension takes some of them.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <indices.hpp>
#include <iterator>
#include <map>
#include <random_seed.hpp>
#include <random_segments.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh.layout;
import shardmesh.test.layouts;

using namespace shardmesh;

namespace {

using list = std::vector<std::int64_t>;

// A split rule, and the weights of a weighted one.
struct known_rule {
  split_rule rule;
  list weights;
};

// Part `index` of `parts` of a list, by the definition of each rule.
list part_of(const list& all, const known_rule& by, std::int64_t parts, std::int64_t index) {
  const auto n = static_cast<std::int64_t>(all.size());
  const std::int64_t chunk = (n + parts - 1) / parts;
  std::int64_t whole = 0, before = 0, begin = 0;
  for (const std::int64_t weight : by.weights) whole += weight;
  for (std::int64_t p = 0; p <= index; ++p) {
    std::int64_t end = 0;
    if (by.rule.policy() == split_policy::torch_chunk) {
      end = std::min(n, chunk * (p + 1));
    } else if (by.rule.policy() == split_policy::balanced) {
      end = begin + n / parts + (p < n % parts ? 1 : 0);
    } else {
      before += by.weights[static_cast<std::size_t>(p)];
      end = n * before / whole;
    }
    if (p == index) return {all.begin() + begin, all.begin() + end};
    begin = end;
  }
  return {};
}

// The indices that a coordinate keeps of those that earlier mesh dimensions left it.
list kept(const list& held, const placement& p, const known_rule& by, std::int64_t parts, std::int64_t index) {
  if (p.kind == placement_kind::shard) return part_of(held, by, parts, index);
  list mine;
  const auto add = [&](const list& piece) {
    std::ranges::copy(part_of(piece, by, parts, index), std::back_inserter(mine));
  };
  if (p.kind == placement_kind::strided_shard) {
    for (std::int64_t piece = 0; piece < p.split_factor; ++piece) add(part_of(held, by, p.split_factor, piece));
    return mine;
  }
  std::int64_t begin = 0;
  for (const std::int64_t size : p.segments()) {
    list segment;
    std::ranges::copy_if(held, std::back_inserter(segment),
                         [&](std::int64_t i) { return i >= begin && i < begin + size; });
    add(segment);
    begin += size;
  }
  return mine;
}

struct described {
  extents mesh, shape;
  std::vector<placement> placements;
  std::vector<known_rule> rules;

  layout made() const {
    std::vector<split_rule> each;
    for (const known_rule& one : rules) each.push_back(one.rule);
    return layout::make(device_mesh::make(mesh).value(), placements, shape, each).value();
  }

  // The indices of each dimension that a coordinate holds, in local order.
  std::vector<list> held(const extents& coordinate) const {
    std::vector<list> all(shape.rank());
    for (std::size_t d = 0; d < shape.rank(); ++d)
      for (std::int64_t i = 0; i < shape[d]; ++i) all[d].push_back(i);
    for (std::size_t m = 0; m < mesh.rank(); ++m) {
      if (!placements[m].is_shard()) continue;
      list& dimension = all[static_cast<std::size_t>(placements[m].dim)];
      dimension = kept(dimension, placements[m], rules[m], mesh[m], coordinate[m]);
    }
    return all;
  }
};

described random_layout(dice& roll) {
  described made;
  for (std::int64_t d = 1 + roll.below(2); d > 0; --d) made.shape.push_back(roll.below(14));
  for (std::int64_t m = 1 + roll.below(3); m > 0; --m) {
    const std::int64_t parts = 1 + roll.below(4);
    made.mesh.push_back(parts);
    const auto dim = static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(made.shape.rank())));
    const std::int64_t kind = roll.below(7);
    made.placements.push_back(
        kind == 0   ? placement::replicate()
        : kind == 1 ? placement::shard(dim)
        : kind == 2 ? placement::strided_shard(dim, 1 + roll.below(4))
                    : placement::shard_segments(dim, random_segments(roll, made.shape[static_cast<std::size_t>(dim)])));
    known_rule by{roll.one_in(3) ? split_rule::balanced() : split_rule::torch_chunk(), {}};
    if (kind != 2 && roll.one_in(4)) {
      for (std::int64_t p = 0; p < parts; ++p) by.weights.push_back(roll.below(4));
      by.weights.back() += 1;
      by.rule = split_rule::weighted(by.weights).value();
    }
    made.rules.push_back(std::move(by));
  }
  return made;
}

// Checks one rank's boxes: they hold each local element once, and it is the element of the model.
void check_boxes(const layout& l, std::int32_t rank, const std::vector<list>& held) {
  extents sizes, first = l.shape();
  for (std::size_t d = 0; d < held.size(); ++d) {
    sizes.push_back(static_cast<std::int64_t>(held[d].size()));
    if (!held[d].empty()) first[d] = held[d].front();
  }
  REQUIRE(l.local_shape(rank) == sizes);
  REQUIRE(l.first_index(rank) == first);
  std::map<extents, extents> wanted, found;  // local to global
  indices::for_each(sizes, [&](const extents& local) {
    extents global = local;
    for (std::size_t d = 0; d < local.rank(); ++d) global[d] = held[d][static_cast<std::size_t>(local[d])];
    wanted.emplace(local, global);
  });
  bool once = true;
  for (const placed_box& b : l.boxes(rank))
    indices::for_each(b.where.sizes, [&](const extents& i) {
      once = found.emplace(indices::sum(i, b.local_offsets), indices::sum(i, b.where.offsets)).second && once;
    });
  REQUIRE(once);
  REQUIRE(found == wanted);
}

std::vector<fragment> in_order(std::vector<fragment> all) {
  std::ranges::sort(all, [](const fragment& a, const fragment& b) {
    return a.owner != b.owner ? a.owner < b.owner : a.where < b.where;
  });
  return all;
}

// Checks that a grid answers as the list of its fragments, and that these cover the tensor.
void check_grid(dice& roll, const layout& l) {
  const distribution grid = distribute(l).value();
  const std::vector<fragment> all = fragments::all_of(grid);
  distribution_builder builder(l.shape(), owner_space::ranks);
  for (const fragment& f : all) builder.add(f);
  builder.at_least_owners(grid.owners());
  const distribution flat = builder.finish().value();
  REQUIRE(grid.fragment_count() == static_cast<std::int64_t>(all.size()));
  REQUIRE(grid.digest() == flat.digest());
  REQUIRE(check_cover(flat).ok());
  for (int i = 0; i < 4; ++i) {
    box where = box::whole(l.shape());
    for (std::size_t d = 0; i > 0 && d < where.rank(); ++d) {
      where.offsets[d] = roll.up_to(l.shape()[d]);
      where.sizes[d] = roll.up_to(l.shape()[d] - where.offsets[d]);
    }
    std::vector<fragment> wanted, found;
    if (!where.is_empty())
      std::ranges::copy_if(all, std::back_inserter(wanted),
                           [&](const fragment& f) { return intersect(f.where, where).has_value(); });
    grid.overlapping(where, [&](const fragment& f) { return found.push_back(f), true; });
    REQUIRE(in_order(found) == in_order(wanted));
  }
}

layout on(const char* mesh, const char* placements, const extents& shape, const split_rule& rule = {}) {
  return layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape, rule).value();
}

using boxes = std::vector<placed_box>;

}  // namespace

TEST_CASE("each rank of a fused tensor holds its part of q, of k, and of v, one after the other") {
  const layout qkv = on("8", "SG(0,64:16:16)", {96, 5});
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    CHECK(qkv.local_shape(rank) == extents{12, 5});
    CHECK(qkv.boxes(rank) == boxes{{{{8 * rank, 0}, {8, 5}}, {0, 0}},
                                   {{{64 + 2 * rank, 0}, {2, 5}}, {8, 0}},
                                   {{{80 + 2 * rank, 0}, {2, 5}}, {10, 0}}});
  }
}

TEST_CASE("a segment that the ranks do not divide is cut by the split rule") {
  // torch.chunk of 5 over 4 is 2, 2, 1, 0, and of 3 is 1, 1, 1, 0.
  const layout chunks = on("4", "SG(0,5:0:3)", {8});
  CHECK(chunks.boxes(0) == boxes{{{{0}, {2}}, {0}}, {{{5}, {1}}, {2}}});
  CHECK(chunks.boxes(2) == boxes{{{{4}, {1}}, {0}}, {{{7}, {1}}, {1}}});
  CHECK(chunks.boxes(3).empty());
  const layout balanced = on("4", "SG(0,5:0:3)", {8}, split_rule::balanced());
  CHECK(balanced.boxes(3) == boxes{{{{4}, {1}}, {0}}});
  const layout weighted = on("2", "SG(0,5:0:3)", {8}, split_rule::weighted({1, 3}).value());
  CHECK(weighted.boxes(0) == boxes{{{{0}, {1}}, {0}}});
  CHECK(weighted.boxes(1) == boxes{{{{1}, {7}}, {0}}});
}

TEST_CASE("a dimension that an outer mesh dimension cuts by segments is cut by an inner one") {
  // Each part of a segment again.
  CHECK(on("2,2", "SG(0,8:4),SG(0,8:4)", {12}).boxes(1) == boxes{{{{2}, {2}}, {0}}, {{{9}, {1}}, {2}}});
  // The rank's rows as one list: 0 to 3, then 8 and 9.
  CHECK(on("2,2", "SG(0,8:4),S(0)", {12}).boxes(1) == boxes{{{{3}, {1}}, {0}}, {{{8}, {2}}, {1}}});
  // Of each segment, what the outer mesh dimension left.
  CHECK(on("2,2", "S(0),SG(0,8:4)", {12}).boxes(0) == boxes{{{{0}, {3}}, {0}}});
  CHECK(on("2,2", "S(0),SG(0,8:4)", {12}).boxes(3) == boxes{{{{7}, {1}}, {0}}, {{{10}, {2}}, {1}}});
}

TEST_CASE("every rank of a random layout with segments holds the elements of a model, and all of them the tensor") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  int several = 0;
  for (std::uint64_t round = random_seed::rounds(1500); round > 0; --round) {
    const described one = random_layout(roll);
    const layout l = one.made();
    INFO(to_string(l));
    for (const known_rule& by : one.rules) UNSCOPED_INFO(to_string(by.rule));
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(l.mesh().size()); ++rank) {
      check_boxes(l, rank, one.held(*l.mesh().coordinate_of(rank)));
      several += l.boxes(rank).size() > 1 ? 1 : 0;
    }
    check_grid(roll, l);
    REQUIRE(parse_placements(to_string(l.placements())).value() == l.placements());
  }
  CHECK(several > 500);
}

TEST_CASE("layouts whose segments differ are different, and so are their digests") {
  const layout one = on("2", "SG(0,4:2)", {6}), other = on("2", "SG(0,2:4)", {6}), none = on("2", "S(0)", {6});
  CHECK(one == on("2", "SG(-1, 4 : 2)", {6}));
  CHECK(one != other);
  CHECK(one != none);
  CHECK(to_string(one) == "[6] on 2 as SG(0,4:2)");
  CHECK(distribute(one).value().description_digest() ==
        distribute(on("2", "SG(0,4:2)", {6})).value().description_digest());
  CHECK(distribute(one).value().description_digest() != distribute(other).value().description_digest());
  CHECK(distribute(one).value().digest() != distribute(other).value().digest());
  // The order of placements, which containers use.
  CHECK(placement::shard_segments(0, {2, 4}) < placement::shard_segments(0, {4, 2}));
  CHECK(placement::shard_segments(0, {4}) < placement::shard_segments(0, {4, 0}));
}

TEST_CASE("an error about segments names the placement, the dimension, the sum, and the size") {
  const auto text = [](const std::vector<placement>& placements, const split_rule& rule = {}) {
    const auto made = layout::make(device_mesh::make({2}).value(), placements, {4, 100}, rule);
    return made ? "" : to_string(made.error());
  };
  CHECK(text({placement::shard_segments(-1, {64, 16, 16})}) ==
        "the segments of placement SG(-1,64:16:16) do not add up to the size of dimension 1: expected 100, found 96; "
        "give the size of each tensor that was fused into the dimension");
  CHECK(text({placement::shard_segments(1, {INT64_MAX, INT64_MAX})}).find("a sum that does not fit in 64 bits") !=
        std::string::npos);
  CHECK(text({placement::shard_segments(1, {101, -1})})
            .find("SG(1,101:-1) of mesh dimension 0 has a segment of negative") != std::string::npos);
  CHECK(text({placement::shard_segments(1, {})}).find("expected 1 to 16, found 0") != std::string::npos);
  CHECK(text({placement::shard_segments(1, list(16, 6))}).find("found 96") != std::string::npos);
  list many(17, 5);
  many.back() = 20;
  CHECK(text({placement::shard_segments(1, many)}).find("expected 1 to 16, found more") != std::string::npos);
  CHECK(text({placement::shard_segments(1, {100})}, split_rule::explicit_sizes({50, 50}).value()) ==
        "split rule sizes:50,50 cannot cut the segments of placement SG(1,100); cut segments by torch_chunk, balanced, "
        "or weights");
}
