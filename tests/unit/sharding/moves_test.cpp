// SPDX-License-Identifier: Apache-2.0
// Tests gather, reshard, and shard_tensor over 1 to 8 ranks, on random layouts: every element is checked. PyTorch's
// answers are in golden_moves_test.cpp, refusals in move_errors_test.cpp.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "random_shards.hpp"
import shardmesh.sharding;
import shardmesh.test.moves;
import shardmesh.test.shards;

using namespace shardmesh;

namespace {

using moves::cut;
using moves::failed;
using moves::on_all;
using moves::whole_tensor;
using shards::at;

std::vector<shard_metadata> random_cut(std::mt19937_64& random, const extents& size, const rank_group& group) {
  for (;;) {
    auto drawn = random_shards::draw(random, group.size());
    if (drawn.size.size() != size.rank()) continue;
    // The boundaries of the drawn tensor, stretched to this one, still cut the whole.
    std::vector<shard_metadata> made;
    for (std::size_t i = 0; i < drawn.shards.size(); ++i) {
      extents offsets, sizes;
      for (std::size_t d = 0; d < size.rank(); ++d) {
        const auto stretched = [&](std::int64_t x) { return drawn.size[d] == 0 ? 0 : x * size[d] / drawn.size[d]; };
        const std::int64_t begin = stretched(drawn.shards[i].offsets[d]);
        const std::int64_t end = drawn.size[d] == 0 && drawn.shards.size() > 1
                                     ? 0
                                     : stretched(drawn.shards[i].offsets[d] + drawn.shards[i].sizes[d]);
        offsets.push_back(begin);
        sizes.push_back(end - begin);
      }
      made.push_back(at(group.global(drawn.owners[i]), offsets, sizes));
    }
    if (check_tensor(made, size)) return made;
  }
}

sharding_spec random_spec(std::mt19937_64& random, const extents& size, const rank_group& group) {
  if (size.empty() || random() % 2 == 0) return enumerable_sharding_spec{random_cut(random, size, group)};
  chunk_sharding_spec made;
  made.dim = static_cast<std::int32_t>(random_shards::below(random, static_cast<std::int64_t>(2 * size.rank()))) -
             static_cast<std::int32_t>(size.rank());
  auto ranks = group.globals();
  std::shuffle(ranks.begin(), ranks.end(), random);
  if (random() % 2 == 0)
    for (std::int64_t more = random_shards::below(random, 4); more > 0; --more) ranks.push_back(ranks[0]);
  if (random() % 2 == 0) ranks.resize(1 + random() % ranks.size());
  for (const std::int32_t rank : ranks) made.placements.push_back({rank, "", {}});
  if (random() % 3 == 0) made.rule = split_rule::balanced();
  return made;
}

rank_group random_group(std::mt19937_64& random, std::int32_t size) {
  std::vector<std::int32_t> globals;
  for (std::int32_t r = 0; r < size; ++r) globals.push_back(r * 2 + static_cast<std::int32_t>(random() % 2));
  std::shuffle(globals.begin(), globals.end(), random);
  return rank_group::make(globals).value();
}

dtype random_dtype(std::mt19937_64& random) {
  for (;;) {
    const auto all = all_dtypes();
    const dtype type = all[random() % all.size()];
    if (bits(type) % 8 == 0) return type;
  }
}

}  // namespace

TEST_CASE("any cut becomes any other, and comes together again, on 1 to 8 ranks") {
  const auto seed = random_shards::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int run = 0; run < random_shards::runs(300); ++run) {
    const auto group = random_group(random, static_cast<std::int32_t>(1 + random() % 8));
    extents size;
    for (std::uint64_t rank = random() % 5; rank > 0; --rank)
      size.push_back(random() % 15 == 0 ? 0 : 1 + random_shards::below(random, 7));
    const auto whole = whole_tensor::random(random, size, random_dtype(random));
    const auto from = random_cut(random, size, group);
    const auto first = random_spec(random, size, group), second = random_spec(random, size, group);
    const auto destination = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(group.size()));
    INFO("run " << run << " " << to_string(size) << " over " << to_string(group));
    on_all(group.size(), [&](any_communicator& comm) -> result<void> {
      const auto start = cut(whole, from, group, comm.rank());
      const auto one = reshard(start, first, comm);
      if (!one) return one.error();
      if (!whole.holds(*one)) return failed("other values after the first");
      const auto two = reshard(*one, second, comm);
      if (!two) return two.error();
      if (!whole.holds(*two)) return failed("other values after the second");
      if (two->metadata() != build_metadata(second, size, {.type = whole.type}).value()) return failed("metadata");
      if (!whole.holds(start)) return failed("the source changed");
      auto all = gather(*two, destination, comm);
      if (!all) return all.error();
      if (*all && !whole.holds(**all, box::whole(size))) return failed("other values gathered");
      auto dealt = shard_tensor(*all ? &**all : nullptr, first, destination, comm, group);
      if (!dealt) return dealt.error();
      return whole.holds(*dealt) ? result<void>() : failed("other values dealt");
    });
  }
}

TEST_CASE("a gather writes into a view with any strides, and no byte beside it") {
  std::mt19937_64 random(11);
  const auto whole = whole_tensor::random(random, {3, 4}, dtype::int16);
  const std::vector<shard_metadata> shards{at(0, {0, 0}, {3, 1}), at(1, {0, 1}, {3, 3})};
  std::vector<std::int16_t> memory(40, -1);
  on_all(2, [&](any_communicator& comm) -> result<void> {
    std::optional<tensor_view> to;
    if (comm.rank() == 1)
      to = tensor_view{reinterpret_cast<std::byte*>(memory.data() + 2), dtype::int16, {}, {3, 4}, {2, 8}};
    return gather(cut(whole, shards, rank_group::world(2), comm.rank()), 1, to, comm);
  });
  for (std::int64_t at_memory = 0; at_memory < 40; ++at_memory) {
    std::int16_t expected = -1;
    for (std::int64_t row = 0; row < 3; ++row)
      for (std::int64_t column = 0; column < 4; ++column)
        if (at_memory == 2 + 2 * row + 8 * column)
          std::memcpy(&expected, whole.bytes.data() + 2 * (4 * row + column), sizeof expected);
    CHECK(memory[static_cast<std::size_t>(at_memory)] == expected);
  }
}
