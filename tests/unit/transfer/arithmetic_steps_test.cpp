// SPDX-License-Identifier: Apache-2.0
// Tests a rank's steps between grids of many ranks, which are computed and not listed. The same distributions as lists
// of fragments have no grid, so the rules make their steps one by one. Both must be the same in everything.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <indices.hpp>
#include <random>
#include <random_seed.hpp>
#include <random_segments.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

// Mesh sizes with many ranks, in one to three dimensions. With `deep`, more than one dimension is long.
std::vector<std::int64_t> random_mesh(dice& roll, bool deep) {
  if (!deep) return roll.pick<std::vector<std::int64_t>>({{300}, {257}, {512}, {3, 101}, {2, 131}, {149, 2}});
  return roll.pick<std::vector<std::int64_t>>({{16, 20}, {7, 43}, {2, 8, 20}, {5, 7, 11}});
}

split_rule random_rule(dice& roll, std::int64_t length, std::int64_t parts) {
  if (roll.one_in(3)) return split_rule::balanced();
  if (!roll.one_in(4)) return split_rule::torch_chunk();
  std::vector<std::int64_t> numbers;
  const bool weights = roll.one_in(2);
  std::int64_t left = length;
  for (std::int64_t p = 0; p < parts; ++p) {
    numbers.push_back(weights ? roll.below(4) : p + 1 == parts ? left : roll.up_to(std::min<std::int64_t>(left, 5)));
    left -= numbers.back();
  }
  if (weights) numbers.back() += 1;
  return (weights ? split_rule::weighted(numbers) : split_rule::explicit_sizes(numbers)).value();
}

layout random_layout(dice& roll, const std::vector<std::int64_t>& mesh, const extents& shape, bool replicas) {
  std::vector<placement> placements;
  std::vector<int> cuts(shape.rank(), 0);
  for (std::size_t m = 0; m < mesh.size(); ++m) {
    if (replicas && roll.one_in(4)) {
      placements.push_back(placement::replicate());
      continue;
    }
    const auto dim = static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank())));
    ++cuts[static_cast<std::size_t>(dim)];
    placements.push_back(
        roll.one_in(6)   ? placement::strided_shard(dim, 1 + roll.below(3))
        : roll.one_in(8) ? placement::shard_segments(dim, random_segments(roll, shape[static_cast<std::size_t>(dim)]))
                         : placement::shard(dim));
  }
  std::vector<std::int32_t> numbering;
  if (roll.one_in(12)) {
    std::int64_t count = 1;
    for (const std::int64_t size : mesh) count *= size;
    for (std::int64_t i = 0; i < count; ++i) numbering.push_back(static_cast<std::int32_t>(count - 1 - i));
  }
  split_rule rule = roll.one_in(2) ? split_rule::balanced() : split_rule::torch_chunk();
  // A rule with its own sizes fits only where one mesh dimension cuts.
  if (mesh.size() == 1 && placements[0].kind == placement_kind::shard)
    rule = random_rule(roll, shape[static_cast<std::size_t>(placements[0].dim)], mesh[0]);
  return layout::make(device_mesh::make(mesh, {}, numbering).value(), placements, shape, rule).value();
}

distribution as_list(const distribution& d) {
  return distribution::from_fragments(d.global_shape(), fragments::all_of(d), d.space()).value();
}

std::vector<step> all_steps(const step_table& table) {
  std::vector<step> steps;
  for (std::size_t i = 0; i < table.size(); ++i) steps.push_back(table[i]);
  return steps;
}

void check_table(const step_table& table) {
  std::size_t met = 0;
  table.for_each([&](std::size_t i, const step_head& head, std::int64_t volume) {
    const step s = table[i];
    const step_head other = table.head_of(i), whole(s);
    const bool same = i == met++ && volume == s.where.volume() && table.volume(i) == volume;
    REQUIRE(same);
    for (const step_head* one : {&head, &other}) {
      const bool equal = one->factor == whole.factor && one->from_owner == whole.from_owner &&
                         one->to_owner == whole.to_owner && one->from_slot == whole.from_slot &&
                         one->to_slot == whole.to_slot && one->term == whole.term && one->kind == whole.kind &&
                         one->phase == whole.phase && one->reduction == whole.reduction &&
                         one->from_side == whole.from_side && one->to_side == whole.to_side;
      REQUIRE(equal);
    }
  });
  REQUIRE(met == table.size());
}

void check_owner(const transfer_plan& grids, const transfer_plan& lists, owner_id owner) {
  INFO("owner " << owner);
  const rank_plan a = grids.for_owner(owner), b = lists.for_owner(owner);
  const owner_steps &mine = a.part(0), &expected = b.part(0);
  REQUIRE_FALSE(expected.steps.is_computed());
  REQUIRE(all_steps(mine.steps) == all_steps(expected.steps));
  check_table(mine.steps);
  CHECK(mine.sends() == expected.sends());
  CHECK(mine.receives() == expected.receives());
  CHECK(a.sends() == b.sends());
  CHECK(a.receives() == b.receives());
  const auto sums = [](const owner_steps& p) {
    return std::vector{p.sent_bytes, p.received_bytes, p.local_bytes, p.staging_bytes, p.held_bytes, p.wanted_bytes};
  };
  CHECK(sums(mine) == sums(expected));
  CHECK(a.peak_bytes() == b.peak_bytes());
  for (int i = 0; i < 20; ++i) CHECK(grids.bytes(owner, i * 7) == lists.bytes(owner, i * 7));
}

}  // namespace

TEST_CASE("steps between large grids are computed, and the same as those that the rules list") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  int computed = 0, compared = 0;
  for (std::uint64_t round = random_seed::rounds(40); round > 0; --round) {
    const bool deep = roll.one_in(3), is_long_everywhere = roll.one_in(2);
    extents shape;
    for (std::int64_t rank = 1 + roll.below(3); rank > 0; --rank)
      shape.push_back(is_long_everywhere ? 300 + roll.below(2000)
                                         : roll.pick<std::int64_t>({1, 13, 40, 307, 600, 2048}));
    const auto mesh = random_mesh(roll, deep), other = roll.one_in(2) ? mesh : random_mesh(roll, deep);
    const layout from = random_layout(roll, mesh, shape, roll.one_in(4)), to = random_layout(roll, other, shape, true);
    INFO(to_string(from) << " -> " << to_string(to));
    const distribution source = distribute(from).value(), target = distribute(to).value();
    const dtype wide = roll.pick({dtype::float32, dtype::bfloat16});
    const transfer_plan grids = plan({{source, target, dtype::float32, wide}}, {.allow_narrowing = true}).value();
    const transfer_plan lists =
        plan({{as_list(source), as_list(target), dtype::float32, wide}}, {.allow_narrowing = true}).value();
    const owner_id owners = std::max(source.owners(), target.owners());
    for (int i = 0; i < 4; ++i) {
      const auto owner = i == 0 ? 0 : i == 1 ? owners - 1 : static_cast<owner_id>(roll.below(owners));
      check_owner(grids, lists, owner);
      ++compared;
      computed += grids.for_owner(owner).part(0).steps.is_computed() ? 1 : 0;
    }
  }
  WARN(computed << " of " << compared << " parts were computed");
  CHECK(computed > 5);
}

TEST_CASE("steps that are computed are carried out like others, at once and in rounds") {
  const extents shape{262, 393};
  const auto grid = [&](const char* mesh, const char* placements) {
    return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
        .value();
  };
  const distribution from = grid("131", "S(0)");
  for (const auto& [to, tight] : {std::pair{grid("131", "S(1)"), std::int64_t{3000}}, {grid("131", "R"), 600'000}})
    for (const std::int64_t memory : {std::int64_t{0}, tight}) {
      const transfer_plan planned = plan({{from, to, dtype::int32, dtype::int32}}, {.memory_bytes = memory}).value();
      REQUIRE(planned.for_owner(5).part(0).steps.is_computed());
      const auto ran = run_ranks(131, [&](any_communicator& comm) -> result<void> {
        const auto slot_of = [&](const distribution& d) {
          extents sizes{0, 0};
          d.fragments_of(comm.rank(), [&](const fragment& f) { return sizes = f.where.sizes, true; });
          return host_tensor::make(dtype::int32, sizes).value();
        };
        const auto number_at = [&](const box& where, const extents& index) {
          return static_cast<std::int32_t>((where.offsets[0] + index[0]) * shape[1] + where.offsets[1] + index[1]);
        };
        const auto number = [](host_tensor& tensor, std::int64_t at) -> std::byte* {
          return tensor.bytes().data() + 4 * at;
        };
        host_tensor source = slot_of(from), target = slot_of(to);
        from.fragments_of(comm.rank(), [&](const fragment& f) {
          std::int64_t at = 0;
          indices::for_each(f.where.sizes, [&](const extents& i) {
            const std::int32_t value = number_at(f.where, i);
            std::memcpy(number(source, at++), &value, 4);
          });
          return true;
        });
        auto made = executor::make(planned, comm, {}, {.in_place = memory == 0});
        if (!made) return std::move(made).error();
        const const_tensor_binding given{{view_of(source)}};
        const tensor_binding taken{{view_of(target)}};
        if (auto done = made->run(std::span(&given, 1), std::span(&taken, 1)); !done) return done;
        if (memory > 0 && made->rounds() < 2) return fail(errc::invalid_argument, "in one round");
        result<void> right;
        to.fragments_of(comm.rank(), [&](const fragment& f) {
          std::int64_t at = 0;
          indices::for_each(f.where.sizes, [&](const extents& i) {
            const std::int32_t value = number_at(f.where, i);
            if (std::memcmp(number(target, at++), &value, 4) != 0)
              right = fail(errc::invalid_argument, "a wrong number").with_rank(comm.rank()).with_box(f.where);
          });
          return true;
        });
        return right;
      });
      INFO(memory << (ran ? std::string() : to_string(ran.error())));
      REQUIRE(ran);
    }
}
