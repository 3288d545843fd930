// SPDX-License-Identifier: Apache-2.0
// Keeps random boxes on random ranks, loses random nodes, and resumes other random boxes, which may overlap. Every
// element is compared with a formula.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <functional>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replica_states.hpp"

using namespace shardmesh;
using namespace replica_states;

namespace random_boxes {

// Boxes of one tensor "t", each in memory of its own.
struct pieces {
  extents shape;
  std::vector<box> boxes;
  std::vector<std::vector<std::int32_t>> values;

  pieces(const extents& of_shape, std::vector<box> of_boxes) : shape(of_shape), boxes(std::move(of_boxes)) {
    for (const box& where : boxes) values.emplace_back(static_cast<std::size_t>(where.volume()), -1);
  }
  // The values that each element must have: they name its row and column.
  std::vector<std::vector<std::int32_t>> expected() const {
    std::vector<std::vector<std::int32_t>> made;
    for (const box& where : boxes) {
      std::vector<std::int32_t>& all = made.emplace_back();
      for (std::int64_t row = where.offsets[0]; row < where.end(0); ++row)
        for (std::int64_t column = where.offsets[1]; column < where.end(1); ++column)
          all.push_back(static_cast<std::int32_t>(100 * row + column));
    }
    return made;
  }
};

inline result<local_state> local_view(pieces& mine) {
  local_state part;
  part.tensors.push_back({{"t"}, mine.shape, dtype::int32, {}});
  for (std::size_t i = 0; i < mine.boxes.size(); ++i) {
    const extents& sizes = mine.boxes[i].sizes;
    auto* const data = reinterpret_cast<std::byte*>(mine.values[i].data());
    part.tensors.front().parts.push_back({mine.boxes[i], {data, dtype::int32, {}, sizes, contiguous_strides(sizes)}});
  }
  return part;
}

}  // namespace random_boxes

namespace {

using random_boxes::pieces;

// Ascending numbers from 0 to `size`.
std::vector<std::int64_t> random_cuts(dice& random, std::int64_t size) {
  std::set<std::int64_t> cuts{0, size};
  for (std::int64_t i = random.below(4); i > 0; --i) cuts.insert(random.below(size));
  return {cuts.begin(), cuts.end()};
}

// The cells of a random grid, each on one rank or on several.
std::vector<std::vector<box>> random_parts(dice& random, const extents& shape, std::int32_t ranks) {
  std::vector<std::vector<box>> made(static_cast<std::size_t>(ranks));
  const std::vector<std::int64_t> rows = random_cuts(random, shape[0]), columns = random_cuts(random, shape[1]);
  for (std::size_t r = 0; r + 1 < rows.size(); ++r)
    for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
      std::set<std::size_t> holders;
      for (std::int64_t i = 1 + random.below(3); i > 0; --i) holders.insert(random.one_of(made.size()));
      for (const std::size_t holder : holders)
        made[holder].push_back({{rows[r], columns[c]}, {rows[r + 1] - rows[r], columns[c + 1] - columns[c]}});
    }
  return made;
}

// Different boxes anywhere in the tensor; some are empty.
std::vector<box> random_wishes(dice& random, const extents& shape) {
  std::set<box> made;
  for (std::int64_t i = random.below(5); i > 0; --i) {
    const std::int64_t row = random.below(shape[0]), column = random.below(shape[1]);
    made.insert(box{{row, column}, {random.up_to(shape[0] - row), random.up_to(shape[1] - column)}});
  }
  return {made.begin(), made.end()};
}

}  // namespace

TEST_CASE("random boxes are resumed as other random boxes after random nodes are lost") {
  const std::uint64_t seed = random_seed::seed();
  dice random(seed);
  for (std::uint64_t round = 0; round < random_seed::rounds(40); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    const auto nodes = static_cast<std::int32_t>(2 + random.below(4));
    const auto per_node = static_cast<std::int32_t>(1 + random.below(2));
    const auto copies = static_cast<std::int32_t>(1 + random.below(nodes));
    const extents shape{1 + random.below(12), 1 + random.below(12)};
    const std::int32_t ranks = nodes * per_node;
    const std::vector<std::vector<box>> parts = random_parts(random, shape, ranks);
    memories all = make_memories(ranks, on_nodes(copies, per_node));
    on_ranks(ranks, [&](any_communicator& comm) -> result<void> {
      const auto rank = static_cast<std::size_t>(comm.rank());
      pieces mine(shape, parts[rank]);
      mine.values = mine.expected();
      const auto kept = all[rank].keep(1, mine, comm);
      if (!kept) return kept.error();
      return expect(kept->differing_boxes == 0, "replicas differ");
    });

    std::set<std::int32_t> lost;
    for (std::int32_t i = 0; i < copies - 1; ++i) {
      const auto node = static_cast<std::int32_t>(random.below(nodes));
      for (std::int32_t k = 0; k < per_node; ++k) lost.insert(node * per_node + k);
    }
    std::vector<step_replicas*> members = survivors(all, lost);
    memories fresh = make_memories(static_cast<std::int32_t>(random.below(3)), {});
    for (step_replicas& one : fresh) members.push_back(&one);
    std::shuffle(members.begin(), members.end(), random.engine());
    std::vector<std::vector<box>> wishes;
    for (std::size_t i = 0; i < members.size(); ++i) wishes.push_back(random_wishes(random, shape));
    on_ranks(static_cast<std::int32_t>(members.size()), [&](any_communicator& comm) -> result<void> {
      const auto rank = static_cast<std::size_t>(comm.rank());
      pieces mine(shape, wishes[rank]);
      const auto resumed = members[rank]->resume(mine, comm);
      if (!resumed) return resumed.error();
      return expect(mine.values == mine.expected(), "other values");
    });
  }
}
