// SPDX-License-Identifier: Apache-2.0
// Compares layouts and plans of the C interface with the library's, box by box and step by step.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

import shardmesh;
import shardmesh.transfer;

using namespace c_answers;

namespace {

struct described_layout {
  std::string mesh, placements;
  std::vector<std::int64_t> shape;
  std::string rule = "torch_chunk";
};

const std::vector<described_layout> layouts{{"4", "S(0)", {10, 7}},
                                            {"2,2", "S(1),R", {10, 7}},
                                            {"dp=2,tp=2", "S(-1),S(0)", {10, 7}},
                                            {"2,2", "SS(0,2),S(0)", {10, 7}},
                                            {"4", "SG(0,5:2:3)", {10, 7}},
                                            {"4", "P(sum)", {10, 7}},
                                            {"4", "S(0)", {10, 7}, "balanced"},
                                            {"3", "S(1)", {10, 7}, "sizes:3,3,1"},
                                            {"6", "S(0)", {10, 7}}};

shardmesh::layout ours(const described_layout& d) {
  return shardmesh::layout::make(
             shardmesh::parse_mesh(d.mesh).value(), shardmesh::parse_placements(d.placements).value(),
             shardmesh::extents(std::span<const std::int64_t>(d.shape)), shardmesh::parse_split_rule(d.rule).value())
      .value();
}

c::layout theirs(const described_layout& d) {
  return c::layout(d.mesh, d.placements, d.shape, d.rule);
}

shardmesh::box to_box(const shardmesh_box& b) {
  const auto rank = static_cast<std::size_t>(b.rank);
  return {shardmesh::extents(std::span(b.offsets, rank)), shardmesh::extents(std::span(b.sizes, rank))};
}

shardmesh::step_end to_end(std::int32_t rank, shardmesh_step_side side, const std::int64_t* offsets,
                           std::size_t dimensions) {
  return {rank, static_cast<shardmesh::buffer_side>(side), 0, shardmesh::extents(std::span(offsets, dimensions))};
}

shardmesh::step to_step(const shardmesh_step& s) {
  const auto rank = static_cast<std::size_t>(s.where.rank);
  return {static_cast<shardmesh::step_kind>(s.kind),
          static_cast<shardmesh::step_phase>(s.phase),
          static_cast<shardmesh::reduce_op>(s.reduction),
          s.term,
          s.factor,
          to_box(s.where),
          to_end(s.from_rank, s.from_side, s.from_offsets, rank),
          to_end(s.to_rank, s.to_side, s.to_offsets, rank)};
}

// The planner numbers the slots of staging buffers; the C interface has one tensor per side and no slots.
shardmesh::step without_slots(shardmesh::step s) {
  s.from.slot = s.to.slot = 0;
  return s;
}

}  // namespace

TEST_CASE("every rank holds the boxes of the library's layout") {
  for (const described_layout& d : layouts) {
    CAPTURE(d.mesh, d.placements, d.rule);
    const shardmesh::layout expected = ours(d);
    const c::layout made = theirs(d);
    REQUIRE(made.rank_count() == expected.mesh().size());
    for (std::int32_t rank = 0; rank < made.rank_count(); ++rank) {
      CHECK(shardmesh::extents(std::span<const std::int64_t>(made.local_shape(rank))) == expected.local_shape(rank));
      std::vector<shardmesh::placed_box> boxes;
      for (const shardmesh_placed_box& b : made.boxes(rank)) {
        const auto dimensions = static_cast<std::size_t>(b.where.rank);
        boxes.push_back({to_box(b.where), shardmesh::extents(std::span(b.local_offsets, dimensions))});
      }
      CHECK(boxes == expected.boxes(rank));
    }
  }
}

TEST_CASE("plans between all pairs of layouts have the library's costs, links and steps") {
  std::size_t steps = 0, links = 0;
  for (const described_layout& from : layouts)
    for (const described_layout& to : layouts) {
      CAPTURE(from.mesh, from.placements, from.rule, to.mesh, to.placements, to.rule);
      const auto bf16 = shardmesh::dtype::bfloat16, f32 = shardmesh::dtype::float32;
      const auto expected = shardmesh::plan({{shardmesh::distribute(ours(from)).value(),
                                              shardmesh::distribute(ours(to)).value(), bf16, f32}})
                                .value();
      c::plan_options how;
      how.from = SHARDMESH_DTYPE_BFLOAT16;
      how.to = SHARDMESH_DTYPE_FLOAT32;
      const c::plan made(theirs(from), theirs(to), how);
      const shardmesh_plan_cost cost = made.cost();
      CHECK(cost.bytes_total == expected.bytes_total());
      CHECK(cost.bytes_moved == expected.bytes_moved());
      CHECK(cost.lower_bound == expected.lower_bound());
      CHECK(cost.peak_bytes == expected.cost().peak_bytes);
      std::vector<shardmesh::link_cost> all;
      for (const shardmesh_link& link : made.links()) all.push_back({link.from, link.to, link.bytes});
      CHECK(all == expected.cost().links);
      links += all.size();
      const auto ranks = std::max(ours(from).mesh().size(), ours(to).mesh().size());
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const shardmesh::rank_plan mine = expected.for_owner(rank);
        std::vector<shardmesh::step> wanted, got;
        for (std::size_t i = 0; i < mine.steps(0).size(); ++i) wanted.push_back(without_slots(mine.steps(0)[i]));
        for (const shardmesh_step& s : made.steps(rank)) got.push_back(to_step(s));
        CHECK((got == wanted));
        steps += got.size();
      }
    }
  CHECK(steps > 500);
  CHECK(links > 200);
}

TEST_CASE("steps come in pieces, from any first one") {
  const c::plan made(theirs(layouts[0]), theirs(layouts[2]));
  const std::vector<shardmesh_step> all = made.steps(1);
  REQUIRE(all.size() > 2);
  std::vector<shardmesh_step> piece(2);
  std::size_t count = 0;
  CHECK(shardmesh_plan_steps(made.c(), 1, all.size() - 1, piece.data(), 2, &count, nullptr) == SHARDMESH_OK);
  CHECK(count == all.size());
  CHECK((to_step(piece[0]) == to_step(all.back())));
  CHECK(shardmesh_plan_steps(made.c(), 1, all.size() + 5, piece.data(), 2, &count, nullptr) == SHARDMESH_OK);
  CHECK(count == all.size());
}

TEST_CASE("layouts and plans that are none are the library's errors") {
  const auto no_mesh = problems_of([] { c::layout("2,x", "S(0),R", {4}); });
  CHECK(c_answers::theirs(no_mesh, &to_box) == c_answers::ours(std::vector{shardmesh::parse_mesh("2,x").error()}));
  const auto no_dimension = problems_of([] { c::layout("2", "S(3)", {4}); });
  REQUIRE(no_dimension.size() == 1);
  CHECK(no_dimension[0].status == SHARDMESH_OUT_OF_BOUNDS);
  const auto no_rank = problems_of([] { c::layout("2", "S(0)", {4}).boxes(2); });
  REQUIRE(no_rank.size() == 1);
  CHECK(no_rank[0].ranks == std::vector<std::int32_t>{2});
  CHECK(std::string(no_rank[0].what()) == "the mesh has no such rank (rank 2): expected a number below 2, found 2");
  const auto other_shape = problems_of([] { c::plan(c::layout("2", "R", {4}), c::layout("2", "R", {5})); });
  REQUIRE(other_shape.size() == 1);
  CHECK(other_shape[0].status == SHARDMESH_SHAPE_MISMATCH);
}
