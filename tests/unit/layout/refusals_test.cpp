// SPDX-License-Identifier: Apache-2.0
// Tests arguments that make no layout: every rule is broken once, and a separate model judges random arguments. Static
// layouts are refused by `find_layout_problem` as well (tests/compile_fail), so both refuse the same.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <dice.hpp>
#include <initializer_list>
#include <optional>
#include <random_seed.hpp>
#include <random_segments.hpp>
#include <set>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {

using numbers = std::vector<std::int64_t>;

struct arguments {
  numbers mesh, shape;
  std::vector<placement> placements;
  std::optional<std::vector<split_rule>> rules{};
};

layout_problem problem_of(const arguments& a) {
  if (!a.rules) return find_layout_problem(a.mesh, a.shape, a.placements);
  return find_layout_problem(a.mesh, a.shape, a.placements, *a.rules);
}

// Precondition: no more dimensions than `extents` can hold.
result<layout> made_of(const arguments& a) {
  const auto mesh = device_mesh::make(a.mesh);
  if (!mesh) return mesh.error();
  if (!a.rules) return layout::make(*mesh, a.placements, extents(a.shape));
  return layout::make(*mesh, a.placements, extents(a.shape), *a.rules);
}

struct refusal {
  arguments of;
  layout_problem problem;
  errc code;
  const char* says;
};

const placement whole = placement::replicate(), rows = placement::shard(0);

std::vector<refusal> refusals() {
  using fault = layout_fault;
  const std::int64_t big = std::int64_t{1} << 40;
  const auto sum = placement::partial(reduce_op::sum), largest = placement::partial(reduce_op::max);
  const auto strided = [](std::int64_t factor) { return placement::strided_shard(0, factor); };
  const auto segments = [](std::initializer_list<std::int64_t> sizes) { return placement::shard_segments(0, sizes); };
  const split_rule chunks, listed = split_rule::explicit_sizes({2, 2}).value();
  return {
      {{numbers(17, 1), {4}, {}}, {fault::too_many_mesh_dimensions, 0}, errc::rank_too_large, "17 dimensions"},
      {{{2, 0}, {4}, {rows, whole}},
       {fault::empty_mesh_dimension, 1},
       errc::invalid_argument,
       "dimension 1 has size 0"},
      {{{65536, 65536}, {4}, {rows, whole}}, {fault::too_many_ranks, 0}, errc::overflow, "2147483647 ranks"},
      {{{2}, {4, -1}, {rows}}, {fault::negative_size, 1}, errc::invalid_argument, "[4, -1] has a negative size"},
      {{{2}, {big, big}, {rows}}, {fault::too_many_elements, 0}, errc::overflow, "does not fit in 64 bits"},
      {{{2, 2}, {4}, {rows}},
       {fault::wrong_number_of_placements, 0},
       errc::invalid_argument,
       "but 1 placement is given"},
      {{{2}, {4}, {rows}, std::vector{chunks, chunks}},
       {fault::wrong_number_of_rules, 0},
       errc::invalid_argument,
       "2 split rules"},
      {{{2, 2}, {4}, {whole, placement::shard(1)}},
       {fault::missing_dimension, 1},
       errc::out_of_bounds,
       "placement S(1)"},
      {{{2}, {4}, {strided(0)}}, {fault::split_factor_below_one, 0}, errc::invalid_argument, "split factor below 1"},
      {{{2}, {4}, {segments({})}},
       {fault::wrong_number_of_segments, 0},
       errc::invalid_argument,
       "expected 1 to 16, found 0"},
      {{{2, 2}, {4}, {whole, segments({5, -1})}},
       {fault::negative_segment, 1},
       errc::invalid_argument,
       "placement SG(0,5:-1) of mesh dimension 1 has a segment of negative size"},
      {{{2, 2}, {4}, {whole, segments({2, 1})}},
       {fault::segments_do_not_add_up, 1},
       errc::invalid_argument,
       "size of dimension 0: expected 4, found 3"},
      {{{2}, {4}, {placement::partial(reduce_op::none)}},
       {fault::missing_reduction, 0},
       errc::invalid_argument,
       "needs a reduction"},
      {{{2, 2, 2}, {4}, {sum, rows, largest}}, {fault::mixed_reductions, 2}, errc::mixed_partial, "sum and max"},
      {{{2}, {4}, {strided(2)}, std::vector{listed}},
       {fault::listed_rule_of_strided, 0},
       errc::invalid_argument,
       "cannot cut a strided"},
      {{{2}, {4}, {segments({4})}, std::vector{listed}},
       {fault::sizes_of_segments, 0},
       errc::invalid_argument,
       "cannot cut the segments of placement SG(0,4)"},
      {{{2, 2}, {5}, {whole, rows}, std::vector{chunks, listed}},
       {fault::rule_does_not_fit, 1},
       errc::invalid_argument,
       "dimension 0, of 5 indices"},
      {{{2}, {2 * big}, {strided(big)}},
       {fault::too_many_boxes_of_a_rank, 0},
       errc::invalid_argument,
       "more than 4194304 boxes"},
  };
}

// The rules again, written separately: nothing is shared with the library.
bool is_layout(const arguments& a) {
  __extension__ using wide = __int128;
  const auto product = [](const numbers& sizes, wide most) -> std::optional<wide> {
    wide volume = 1;
    for (const std::int64_t size : sizes)
      if (size == 0) return 0;
    for (const std::int64_t size : sizes) {
      if (volume > most / size) return std::nullopt;
      volume *= size;
    }
    return volume;
  };
  for (const std::int64_t size : a.mesh)
    if (size <= 0) return false;
  for (const std::int64_t size : a.shape)
    if (size < 0) return false;
  if (!product(a.mesh, INT32_MAX) || !product(a.shape, INT64_MAX)) return false;
  if (a.placements.size() != a.mesh.size()) return false;
  const auto dims = static_cast<std::int64_t>(a.shape.size());
  std::set<reduce_op> reductions;
  numbers factors;
  for (std::size_t m = 0; m < a.mesh.size(); ++m) {
    const placement& p = a.placements[m];
    if (p.kind == placement_kind::partial) {
      if (p.reduction == reduce_op::none) return false;
      reductions.insert(p.reduction == reduce_op::avg ? reduce_op::sum : p.reduction);
    }
    if (p.kind == placement_kind::partial || p.kind == placement_kind::replicate) continue;
    if (p.dim < -dims || p.dim >= dims || p.split_factor < 1) return false;
    const std::int64_t length = a.shape[static_cast<std::size_t>(p.dim < 0 ? p.dim + dims : p.dim)];
    if (p.kind == placement_kind::shard_segments) {
      if (p.segment_count < 1 || p.segment_count > 16) return false;
      wide sum = 0;
      for (std::int32_t s = 0; s < p.segment_count; ++s) {
        if (p.segment_sizes[s] < 0) return false;
        sum += p.segment_sizes[s];
      }
      if (sum != length) return false;
      if (a.mesh[m] > 1) factors.push_back(p.segment_count);
    }
    if (a.mesh[m] > 1 && p.split_factor < length) factors.push_back(p.split_factor);
  }
  return reductions.size() <= 1 && product(factors, std::int64_t{1} << 22).has_value();
}

arguments random_arguments(dice& roll) {
  arguments a;
  for (std::int64_t m = roll.below(4); m > 0; --m)
    a.mesh.push_back(roll.below(12) == 0 ? roll.pick<std::int64_t>({0, -1, 65536, INT32_MAX, INT64_MAX})
                                         : 1 + roll.below(4));
  for (std::int64_t d = roll.below(4); d > 0; --d)
    a.shape.push_back(roll.below(8) == 0 ? roll.pick<std::int64_t>({0, -1, 1 << 30, INT64_MAX, INT64_MAX / 2})
                                         : roll.below(9));
  const auto count = roll.below(20) == 0 ? roll.below(4) : static_cast<std::int64_t>(a.mesh.size());
  const auto dims = static_cast<std::int64_t>(a.shape.size());
  for (std::int64_t m = 0; m < count; ++m) {
    const auto dim =
        static_cast<std::int32_t>(dims == 0 || roll.below(16) == 0 ? roll.below(9) - 4 : roll.below(2 * dims) - dims);
    const std::int64_t factor = roll.below(8) == 0
                                    ? roll.pick<std::int64_t>({0, -3, 2048, 1 << 22, (1 << 22) + 1, INT64_MAX})
                                    : 1 + roll.below(5);
    const auto op = roll.below(16) == 0 ? reduce_op::none
                                        : roll.pick({reduce_op::sum, reduce_op::sum, reduce_op::avg, reduce_op::max});
    numbers segments(static_cast<std::size_t>(roll.below(12) == 0 ? roll.pick<std::int64_t>({0, 16, 17}) : 0));
    if (segments.empty() && dim >= -dims && dim < dims)
      segments = random_segments(roll, a.shape[static_cast<std::size_t>(dim < 0 ? dim + dims : dim)]);
    if (!segments.empty() && roll.below(12) == 0) segments.back() = roll.pick<std::int64_t>({-1, 3, INT64_MAX});
    a.placements.push_back(
        roll.pick({placement::replicate(), placement::shard(dim), placement::strided_shard(dim, factor),
                   placement::shard_segments(dim, segments), placement::partial(op)}));
  }
  return a;
}

}  // namespace

TEST_CASE("every rule of layouts is broken with a name and a place, by layouts and static layouts alike") {
  std::set<layout_fault> seen;
  for (const refusal& r : refusals()) {
    INFO(r.says);
    CHECK(problem_of(r.of) == r.problem);
    const auto made = made_of(r.of);
    REQUIRE(!made);
    CHECK(made.error().code == r.code);
    CHECK(to_string(made.error()).find(r.says) != std::string::npos);
    seen.insert(r.problem.fault);
  }
  // The type `extents` cannot have 17 dimensions, but a static shape can.
  CHECK(find_layout_problem({}, numbers(17, 1), {}) == layout_problem{layout_fault::too_many_dimensions, 0});
  seen.insert(layout_fault::too_many_dimensions);
  CHECK(seen.size() == static_cast<std::size_t>(layout_fault::too_many_boxes_of_a_rank));
}

TEST_CASE("random arguments make a layout when the rules say so, and only then") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  int valid = 0, refused = 0;
  for (std::uint64_t i = random_seed::rounds(20'000); i > 0; --i) {
    const arguments a = random_arguments(roll);
    const bool expected = is_layout(a);
    INFO("mesh " << to_string(extents(a.mesh)) << ", shape " << to_string(extents(a.shape)) << ", "
                 << to_string(a.placements));
    REQUIRE(!problem_of(a) == expected);
    REQUIRE(made_of(a).has_value() == expected);
    ++(expected ? valid : refused);
  }
  CHECK(valid > 2'000);
  CHECK(refused > 2'000);
}
