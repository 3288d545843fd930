// SPDX-License-Identifier: Apache-2.0
// Compares static_transfer with the planner, and both with a count of elements. Every layout is written twice: as a
// type, and as text for the planner.
#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <indices.hpp>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
import shardmesh.transfer;

using namespace shardmesh;

namespace {

template <static_extents Mesh, static_extents Shape, placement... Placements>
using typed = static_layout<Mesh, Shape, Placements...>;
constexpr auto replicate = placement::replicate();
constexpr auto sum = placement::partial(reduce_op::sum);
constexpr auto average = placement::partial(reduce_op::avg);
constexpr auto largest = placement::partial(reduce_op::max);
constexpr placement shard(std::int32_t dim) {
  return placement::shard(dim);
}
constexpr placement strided(std::int32_t dim, std::int64_t factor) {
  return placement::strided_shard(dim, factor);
}

struct spelling {
  const char* mesh;
  const char* placements;
};

constexpr static_extents matrix{10, 7};
struct matrices {
  using types =
      std::tuple<typed<static_extents{4}, matrix, shard(0)>, typed<static_extents{2, 3}, matrix, shard(0), shard(1)>,
                 typed<static_extents{2, 2}, matrix, shard(-1), replicate>,
                 typed<static_extents{3}, matrix, strided(0, 2)>, typed<static_extents{2, 2}, matrix, sum, shard(0)>,
                 typed<static_extents{3}, matrix, average>>;
  static constexpr const char* shape = "10,7";
  static constexpr spelling spelled[] = {{"4", "S(0)"},    {"2,3", "S(0),S(1)"},   {"2,2", "S(-1),R"},
                                         {"3", "SS(0,2)"}, {"2,2", "P(sum),S(0)"}, {"3", "P(avg)"}};
};

constexpr static_extents prime{13};
struct primes {
  using types =
      std::tuple<typed<static_extents{5}, prime, shard(0)>, typed<static_extents{2, 2}, prime, strided(0, 2), shard(0)>,
                 typed<static_extents{2, 3}, prime, replicate, shard(0)>,
                 typed<static_extents{3}, prime, strided(0, 5)>, typed<static_extents{2}, prime, largest>>;
  static constexpr const char* shape = "13";
  static constexpr spelling spelled[] = {
      {"5", "S(0)"}, {"2,2", "SS(0,2),S(0)"}, {"2,3", "R,S(0)"}, {"3", "SS(0,5)"}, {"2", "P(max)"}};
};

constexpr static_extents none{0, 4};
struct zero_rows {
  using types = std::tuple<typed<static_extents{3}, none, shard(0)>, typed<static_extents{2}, none, shard(1)>,
                           typed<static_extents{2}, none, sum>>;
  static constexpr const char* shape = "0,4";
  static constexpr spelling spelled[] = {{"3", "S(0)"}, {"2", "S(1)"}, {"2", "P(sum)"}};
};

constexpr static_extents zero_dims{};
struct scalars {
  using types =
      std::tuple<typed<static_extents{2}, zero_dims, replicate>, typed<static_extents{3}, zero_dims, replicate>,
                 typed<static_extents{2, 2}, zero_dims, average, sum>, typed<zero_dims, zero_dims>>;
  static constexpr const char* shape = "[]";
  static constexpr spelling spelled[] = {{"2", "R"}, {"3", "R"}, {"2,2", "P(avg),P(sum)"}, {"", ""}};
};

layout at_run_time(const char* shape, const spelling& s) {
  const device_mesh mesh = *s.mesh == '\0' ? device_mesh() : parse_mesh(s.mesh).value();
  const auto placements = *s.mesh == '\0' ? std::vector<placement>() : parse_placements(s.placements).value();
  return layout::make(mesh, placements, parse_shape(shape).value()).value();
}

// The boxes that one rank sends or receives in the planner's steps.
std::vector<moved_box> moved(const owner_steps& part, bool sent) {
  std::vector<moved_box> boxes;
  for (const auto& [peer, index] : sent ? part.sends() : part.receives())
    boxes.push_back({peer, part.steps[index].where});
  return boxes;
}
std::vector<box> kept(const owner_steps& part) {
  std::vector<box> boxes;
  for (std::size_t i = 0; i < part.steps.size(); ++i) {
    const step s = part.steps[i];
    if (s.kind == step_kind::copy && s.from.owner == s.to.owner && s.from.side == buffer_side::source &&
        s.to.side == buffer_side::destination)
      boxes.push_back(s.where);
  }
  return boxes;
}
std::vector<step> steps_of(const owner_steps& part) {
  std::vector<step> steps;
  for (std::size_t i = 0; i < part.steps.size(); ++i) steps.push_back(part.steps[i]);
  return steps;
}
template <class Array>
auto as_vector(const Array& values) {
  return std::vector<typename Array::value_type>(values.begin(), values.end());
}

template <class Transfer, owner_id Rank>
void check_rank(const transfer_plan& planned) {
  INFO("rank " << Rank);
  const rank_plan whole = planned.for_owner(Rank);
  const owner_steps& expected = whole.part(0);
  CHECK(as_vector(Transfer::template sends<Rank>) == moved(expected, true));
  CHECK(as_vector(Transfer::template receives<Rank>) == moved(expected, false));
  CHECK(as_vector(Transfer::template kept<Rank>) == kept(expected));
  CHECK(as_vector(Transfer::template steps<Rank>) == steps_of(expected));
  [&]<owner_id... Others>(std::integer_sequence<owner_id, Others...>) {
    CHECK(std::vector{Transfer::template bytes<Rank, Others>...} == std::vector{planned.bytes(Rank, Others)...});
  }(std::make_integer_sequence<owner_id, Transfer::ranks>());
}

// The elements of the tensor that a rank holds, as row-major numbers.
std::vector<std::int64_t> elements(const layout& l, std::int32_t rank) {
  std::vector<std::int64_t> numbers;
  for (const placed_box& b : l.boxes(rank))
    indices::for_each_in(b.where, [&](const extents& at) { numbers.push_back(indices::row_major(at, l.shape())); });
  return numbers;
}

// Without terms: each rank gets every element that it wants once, from a holder, and moves no other element.
template <class Transfer, owner_id Rank>
std::int64_t count_elements(const layout& from, const layout& to) {
  std::map<std::int64_t, int> got;
  std::int64_t received = 0;
  const auto local_view = [&](owner_id rank) {
    auto held = elements(from, rank);
    std::sort(held.begin(), held.end());
    return held;
  };
  const auto take = [&](const box& where, owner_id sender) {
    const auto held = local_view(sender);
    indices::for_each_in(where, [&](const extents& at) {
      const std::int64_t number = indices::row_major(at, to.shape());
      CHECK(std::binary_search(held.begin(), held.end(), number));
      ++got[number];
      if (sender != Rank) ++received;
    });
  };
  for (const box& where : Transfer::template kept<Rank>) take(where, Rank);
  for (const moved_box& m : Transfer::template receives<Rank>) take(m.where, m.peer);
  std::map<std::int64_t, int> wanted;
  std::int64_t lacking = 0;
  const auto held = local_view(Rank);
  for (const std::int64_t number : elements(to, Rank)) {
    ++wanted[number];
    lacking += !std::binary_search(held.begin(), held.end(), number);
  }
  CHECK(got == wanted);
  CHECK(received == lacking);
  return lacking;
}

template <class Group, std::size_t From, std::size_t To>
void check_pair() {
  using transfer = static_transfer<std::tuple_element_t<From, typename Group::types>,
                                   std::tuple_element_t<To, typename Group::types>>;
  const layout from = at_run_time(Group::shape, Group::spelled[From]),
               to = at_run_time(Group::shape, Group::spelled[To]);
  INFO(to_string(from) << " to " << to_string(to));
  const auto planned =
      plan({{distribute(from).value(), distribute(to).value(), dtype::float32, dtype::float32}}).value();
  CHECK(transfer::plan().digest() == planned.digest());
  CHECK(transfer::bytes_total == planned.bytes_total());
  CHECK(transfer::bytes_moved == planned.bytes_moved());
  CHECK(transfer::lower_bound == planned.lower_bound());
  CHECK(transfer::is_minimal);
  [&]<owner_id... Ranks>(std::integer_sequence<owner_id, Ranks...>) {
    (check_rank<transfer, Ranks>(planned), ...);
    if (from.reduction() == reduce_op::none && to.reduction() == reduce_op::none)
      CHECK(4 * (count_elements<transfer, Ranks>(from, to) + ...) == transfer::bytes_moved);
  }(std::make_integer_sequence<owner_id, transfer::ranks>());
}

template <class Group, std::size_t... Pairs>
void check_pairs(std::index_sequence<Pairs...>) {
  constexpr std::size_t count = std::tuple_size_v<typename Group::types>;
  // Each layout with itself and with the next two: every pair would take minutes to compile.
  (check_pair<Group, Pairs / 3, (Pairs / 3 + Pairs % 3) % count>(), ...);
}

}  // namespace

TEMPLATE_TEST_CASE("a static transfer is the plan that the planner makes, and moves what is lacking", "", matrices,
                   primes, zero_rows, scalars) {
  constexpr std::size_t count = std::tuple_size_v<typename TestType::types>;
  static_assert(count == std::size(TestType::spelled));
  check_pairs<TestType>(std::make_index_sequence<count * 3>());
}
