// SPDX-License-Identifier: Apache-2.0
// Compares random flat parameters over 1 to 8 ranks with a model: the flat tensor as a list of (parameter, element),
// cut into equal pieces.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "random_seed.hpp"
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

std::vector<parameter_info> random_parameters(std::mt19937_64& random) {
  constexpr std::int64_t sizes[] = {0, 1, 2, 3, 5, 7, 11, 13};
  std::vector<parameter_info> made(1 + random() % 6);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i].fqn = "p" + std::to_string(i);
    made[i].type = dtype::int64;
    const std::size_t rank = random() % 5;
    for (std::size_t d = 0; d < rank; ++d) made[i].shape.push_back(sizes[(random() % 12 == 0 ? 0 : 1) + random() % 7]);
    std::vector<std::size_t> order(rank);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (random() % 2) std::shuffle(order.begin(), order.end(), random);
    made[i].strides = extents::filled(rank, 0);
    std::int64_t step = 1;
    for (std::size_t k = rank; k-- > 0;) {
      made[i].strides[order[k]] = step;
      step *= made[i].shape[order[k]];
    }
  }
  return made;
}

// The row-major number of the element at each position of a parameter's memory.
std::vector<std::int64_t> memory_of(const parameter_info& p) {
  std::vector<std::int64_t> memory(static_cast<std::size_t>(box::whole(p.shape).volume()));
  extents index = extents::filled(p.shape.rank(), 0);
  for (std::size_t n = 0; n < memory.size(); ++n) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.rank(); ++d) at += index[d] * p.strides[d];
    memory[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(n);
    for (std::size_t d = index.rank(); d > 0 && ++index[d - 1] == p.shape[d - 1];) index[--d] = 0;
  }
  return memory;
}

}  // namespace

TEST_CASE("every rank's slots are the elements of its flat range, and all ranks together have them all") {
  for (const std::uint64_t seed : random_seed::seeds(1000)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const std::int64_t alignment = random() % 2 ? 1 + static_cast<std::int64_t>(random() % 8) : 0;
    const auto positions = static_cast<std::int32_t>(1 + random() % 8);
    const bool sharded = random() % 8 != 0;
    const auto flat = flat_parameter::make(random_parameters(random), {},
                                           {.group_size = positions, .alignment = alignment, .sharded = sharded})
                          .value();
    // The model: the content of each position of the flat tensor. Padding has parameter -1 and element 42, or 0 at the
    // end.
    std::vector<std::pair<std::int64_t, std::int64_t>> model;  // parameter, element
    for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
      while (alignment > 0 && static_cast<std::int64_t>(model.size()) % alignment != 0) model.emplace_back(-1, 42);
      for (const std::int64_t element : memory_of(flat.parameters()[i]))
        model.emplace_back(static_cast<std::int64_t>(i), element);
    }
    while (alignment > 0 && static_cast<std::int64_t>(model.size()) % positions != 0) model.emplace_back(-1, 42);
    REQUIRE(flat.unsharded_numel() == static_cast<std::int64_t>(model.size()));
    while (sharded && static_cast<std::int64_t>(model.size()) % positions != 0) model.emplace_back(-1, 0);
    REQUIRE(flat.padded_numel() == static_cast<std::int64_t>(model.size()));
    const auto shard_size = sharded ? model.size() / static_cast<std::size_t>(positions) : model.size();
    REQUIRE(flat.sharded_numel() == static_cast<std::int64_t>(shard_size));

    // Replicas, and a rank that is not a member.
    const std::int32_t replicas = 1 + static_cast<std::int32_t>(random() % 2);
    std::vector<std::int32_t> group_positions;
    for (std::int32_t r = 0; r < replicas * positions; ++r) group_positions.push_back(r % positions);
    std::shuffle(group_positions.begin(), group_positions.end(), random);
    group_positions.push_back(-1);
    const auto group = shard_group::make(group_positions).value();

    std::vector<std::vector<std::int64_t>> times_held(flat.parameters().size());
    for (std::size_t i = 0; i < flat.parameters().size(); ++i)
      times_held[i].resize(static_cast<std::size_t>(flat.numel(i)));
    for (std::int32_t rank = 0; rank < group.ranks(); ++rank) {
      const auto position = group.position(rank);
      std::vector<std::int64_t> shard;  // the parameter's element at each position
      if (position) {
        const std::size_t begin = sharded ? shard_size * static_cast<std::size_t>(*position) : 0;
        for (std::size_t k = 0; k < shard_size; ++k) shard.push_back(model[begin + k].second);
      }
      const tensor_view view{
          reinterpret_cast<std::byte*>(shard.data()), dtype::int64, {}, {static_cast<std::int64_t>(shard.size())}, {1}};
      if (position) {
        auto padded = shard;
        REQUIRE(flat.fill_padding(*position,
                                  {reinterpret_cast<std::byte*>(padded.data()), dtype::int64, {}, view.sizes, {1}}));
        REQUIRE(padded == shard);
      }
      for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
        const auto& shape = flat.parameters()[i].shape;
        const distribution d = distribution_of(flat, i, group).value();
        REQUIRE(d.owners() == group.ranks());
        std::vector<tensor_view> slots;
        if (position) slots = slots_of(flat, i, *position, view).value();
        std::size_t fragments = 0;
        std::int64_t held = 0;
        d.fragments_of(rank, [&](const fragment& f) {
          ++fragments;
          const tensor_view& slot = slots.at(static_cast<std::size_t>(f.slot));
          REQUIRE(slot.sizes == f.where.sizes);
          extents index = extents::filled(shape.rank(), 0);
          for (std::int64_t n = 0; n < f.where.volume(); ++n, ++held) {
            std::int64_t place = 0, element = 0;
            for (std::size_t k = 0; k < shape.rank(); ++k) {
              place += index[k] * slot.strides[k];
              element = element * shape[k] + f.where.offsets[k] + index[k];
            }
            REQUIRE(reinterpret_cast<const std::int64_t*>(slot.data)[place] == element);
            ++times_held[i][static_cast<std::size_t>(element)];
            for (std::size_t k = shape.rank(); k > 0 && ++index[k - 1] == f.where.sizes[k - 1];) index[--k] = 0;
          }
          return true;
        });
        REQUIRE(fragments == slots.size());
        REQUIRE(fragments <= (shape.rank() == 0 ? 1 : 2 * shape.rank() - 1));
        if (position) {
          const auto info = flat.shard_info(*position, i);
          REQUIRE(held == info.numel_in_shard);
        }
      }
    }
    const std::int64_t times = sharded ? replicas : replicas * positions;
    for (const auto& one : times_held)
      for (const std::int64_t n : one) REQUIRE(n == times);
  }
}

TEST_CASE("the flat tensor itself is distributed without the padding at its end") {
  const auto flat = flat_parameter::make({{"a", {5}, {}}, {"b", {2}, {}}}, {}, {.group_size = 4}).value();
  const auto d = flat_distribution(flat, shard_group::world(4)).value();
  CHECK(d.global_shape() == extents{7});
  CHECK(check_cover(d).ok());
  std::vector<std::int64_t> sizes;
  for (owner_id r = 0; r < 4; ++r)
    d.fragments_of(r, [&](const fragment& f) { return sizes.push_back(f.where.sizes[0]), true; });
  CHECK(sizes == std::vector<std::int64_t>{2, 2, 2, 1});
}

TEST_CASE("the distribution of one parameter among thousands of ranks takes no longer than its holders are many") {
  const std::int32_t ranks = 100'000;
  const auto flat =
      flat_parameter::make({{"big", {1 << 20, 1 << 12}, {}}, {"small", {77, 3}, {}}}, {}, {.group_size = ranks})
          .value();
  const auto d = distribution_of(flat, 1, shard_group::world(ranks)).value();
  CHECK(d.fragment_count() <= 3);
  CHECK(check_cover(d).ok());
}

TEST_CASE("a group of another size or a shard that is too small is an error that names it") {
  const auto flat = flat_parameter::make({{"a", {5}, {}}}, {}, {.group_size = 2}).value();
  CHECK(to_string(distribution_of(flat, 0, shard_group::world(3)).error()).find("2 positions") != std::string::npos);
  std::vector<float> memory(3);
  tensor_view shard{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, {2}, {1}};
  const auto small = slots_of(flat, 0, 0, shard);
  CHECK(to_string(small.error()).find("a: ") != std::string::npos);
  CHECK(to_string(small.error()).find("[3]") != std::string::npos);
  shard.sizes = {3};
  shard.type = dtype::float64;
  CHECK(slots_of(flat, 0, 0, shard).error().code == errc::dtype_mismatch);
}
