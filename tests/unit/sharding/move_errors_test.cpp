// SPDX-License-Identifier: Apache-2.0
// Tests refusals of gather, reshard, and shard_tensor: every rank gets the same error, which names the cause and the
// rank, and nothing hangs.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_tensor.hpp"
import shardmesh.sharding;
import shardmesh.test.moves;
import shardmesh.test.shards;

// A framework's tensor whose large allocations fail.
struct small_tensor {
  fake_tensor held;
};
template <>
struct shardmesh::adapter<small_tensor> {
  static tensor_view view(const small_tensor& t) { return adapter<fake_tensor>::view(t.held); }
  static small_tensor allocate(dtype type, const extents& sizes, device) {
    if (!sizes.empty() && sizes[0] > 4) throw std::runtime_error("more than 4 rows");
    return {fake_tensor::make(sizes, {.type = type}, 8)};
  }
};

using namespace shardmesh;

namespace {

using moves::cut;
using moves::error_on_all;
using moves::whole_tensor;
using shards::at;

}  // namespace

TEST_CASE("wrong arguments on any rank are every rank's error, and nothing hangs") {
  std::mt19937_64 random(12);
  const auto whole = whole_tensor::random(random, {6, 2}, dtype::float32);
  const auto group = rank_group::make({4, 0, 7}).value();
  const std::vector<shard_metadata> shards{at(4, {0, 0}, {2, 2}), at(0, {2, 0}, {2, 2}), at(7, {4, 0}, {2, 2})};
  const auto mine = [&](any_communicator& comm) { return cut(whole, shards, group, comm.rank()); };
  const auto view = [](dtype type, const extents& sizes) {
    return std::optional(tensor_view{nullptr, type, {}, sizes, contiguous_strides(sizes)});
  };

  CHECK(error_on_all(
            3, [&](any_communicator& comm) { return gather(mine(comm), 1, std::optional<tensor_view>(), comm); }) ==
        "the destination tensor of a gather must be specified on destination rank 0 (rank 0): expected a tensor of "
        "[6, 2], found none");
  CHECK(error_on_all(3,
                     [&](any_communicator& comm) {
                       return gather(mine(comm), 1,
                                     view(dtype::float32, comm.rank() == 1 ? extents{2, 6} : extents{6, 2}), comm);
                     }) ==
        "the destination tensor of a gather must not be specified on a rank other than destination rank 0 (rank 4): "
        "expected none, found a tensor of [6, 2]");
  CHECK(error_on_all(3,
                     [&](any_communicator& comm) {
                       return gather(mine(comm), 1, comm.rank() == 1 ? view(dtype::float64, {6, 2}) : std::nullopt,
                                     comm);
                     }) ==
        "the destination tensor of a gather does not have the tensor's dtype (rank 0): expected float32, found "
        "float64");
  CHECK(error_on_all(3, [&](any_communicator& comm) -> result<void> {
          auto found = gather(mine(comm), 3, comm);
          return found ? result<void>() : result<void>(found.error());
        }) == "the destination rank is not in the group (rank 4): expected 0 to 2, found 3");
  const auto text = error_on_all(3, [&](any_communicator& comm) -> result<void> {
    auto found = gather(mine(comm), comm.rank() == 2 ? 1 : 0, comm);
    return found ? result<void>() : result<void>(found.error());
  });
  CHECK(text.find("'destination rank' is 0 on ranks 0, 1, 1 on rank 2") != std::string::npos);

  const auto reshard_error = [&](auto spec) {
    return error_on_all(3, [&](any_communicator& comm) -> result<void> {
      auto found = reshard(mine(comm), spec(comm.rank()), comm);
      return found ? result<void>() : result<void>(found.error());
    });
  };
  const auto chunks = [](std::int32_t dim, std::vector<std::int32_t> ranks) {
    chunk_sharding_spec made{dim, {}};
    for (const std::int32_t r : ranks) made.placements.push_back({r, "", {}});
    return sharding_spec(made);
  };
  CHECK(reshard_error([&](std::int32_t r) { return chunks(r == 2 ? 2 : 0, {0, 4, 7}); }) ==
        "invalid sharding dimension 2 (rank 7): expected -2 to 1, found 2");
  CHECK(reshard_error([&](std::int32_t) { return chunks(0, {0, 1}); }) ==
        "global rank 1 does not exist in the process group (rank 1): expected one of [4, 0, 7], found 1");
  CHECK(
      reshard_error([&](std::int32_t r) { return chunks(r == 1 ? 1 : 0, {0, 7}); }) ==
      "spec: ranks disagree on 1 of 2 arguments of reshard: 'spec' is 2 torch_chunk chunks along dimension 0 on "
      "rank:0/cpu, rank:7/cpu on ranks 0, 2, 2 torch_chunk chunks along dimension 1 on rank:0/cpu, rank:7/cpu on rank "
      "1 (rank 1): expected 2 torch_chunk chunks along dimension 0 on rank:0/cpu, rank:7/cpu on ranks 0, 2, found 2 "
      "torch_chunk chunks along dimension 1 on rank:0/cpu, rank:7/cpu on rank 1");
  const auto listed = [&](std::int32_t last) {
    enumerable_sharding_spec made;
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t column = 0; column < 2; ++column) made.shards.push_back(at(4, {row, column}, {1, 1}));
    for (int i = 0; i < 8; ++i) made.shards.insert(made.shards.begin(), at(0, {0, 0}, {0, 1}));
    made.shards.back().placement->rank = last;
    return sharding_spec(made);
  };
  // The long lists are equal as shortened text, so the executor finds the difference.
  const auto beyond_words = reshard_error([&](std::int32_t r) { return listed(r == 1 ? 7 : 4); });
  CHECK(beyond_words.find("disagree") != std::string::npos);
  CHECK(beyond_words.find("rank 1") != std::string::npos);
  CHECK(reshard_error([&](std::int32_t) {
          return sharding_spec(enumerable_sharding_spec{{at(4, {0, 0}, {6, 1}), at(0, {0, 1}, {5, 1})}});
        }) == "cells are held by no rank in [5:6, 1:2)");

  CHECK(error_on_all(3, [&](any_communicator& comm) -> result<void> {
          auto found = shard_tensor<host_tensor>(nullptr, chunks(0, {4}), 2, comm, group);
          return found ? result<void>() : result<void>(found.error());
        }) == "the source rank has no tensor to shard (rank 7)");
}

TEST_CASE("memory that is short on one rank is every rank's error") {
  const auto world = rank_group::world(2);
  const auto text = error_on_all(2, [&](any_communicator& comm) -> result<void> {
    const auto metadata = at(comm.rank(), {4 * comm.rank()}, {4});
    std::vector<shard<small_tensor>> local;
    local.push_back(
        shard<small_tensor>::make(small_tensor{fake_tensor::make({4}, {.type = dtype::int64}, 8)}, metadata).value());
    auto whole = init_from_local_shards(std::move(local), extents{8}, comm, world);
    if (!whole) return whole.error();
    const sharding_spec uneven = enumerable_sharding_spec{{at(0, {0}, {2}), at(1, {2}, {6})}};
    auto found = reshard(*whole, uneven, comm);
    return found ? result<void>() : result<void>(found.error());
  });
  CHECK(text == "a tensor of [6] cannot be allocated: more than 4 rows (rank 1)");
}

TEST_CASE("nested shards are refused with a hint, on every rank") {
  const auto text = error_on_all(2, [&](any_communicator& comm) -> result<void> {
    const auto world = rank_group::world(2);
    const auto mine = at(comm.rank(), {2 * comm.rank()}, {2});
    std::vector<shard<host_tensor>> local;
    if (comm.rank() == 0) {
      const sharded_tensor_metadata inner{{at(0, {0}, {2})}, {2}, {.type = dtype::int8}};
      std::vector<shard<host_tensor>> inside;
      inside.push_back(shard<host_tensor>::make(host_tensor::make(dtype::int8, {2}).value(), inner.shards[0]).value());
      auto nested = sharded_tensor<host_tensor>::make(std::move(inside), inner, world, 0);
      local.push_back(shard<host_tensor>::make(*std::move(nested), mine).value());
    } else {
      local.push_back(shard<host_tensor>::make(host_tensor::make(dtype::int8, {2}).value(), mine).value());
    }
    auto whole = init_from_local_shards(std::move(local), extents{4}, comm, world);
    if (!whole) return whole.error();
    auto found = gather(*whole, 0, comm);
    return found ? result<void>() : result<void>(found.error());
  });
  CHECK(text ==
        "a tensor with nested shards cannot be moved as it is (rank 0); flatten its shards first "
        "(flatten_nested_shards)");
}
