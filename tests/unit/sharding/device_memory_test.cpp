// SPDX-License-Identifier: Apache-2.0
// Tests device memory on one rank: every rank gets the error before anything moves, and the communicator stays usable.
// Also tests that a shard outside its tensor is reported with its box.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_tensor.hpp"
import shardmesh.sharding;
import shardmesh.test.moves;
import shardmesh.test.shards;

// A framework's tensor that can be allocated on any device.
struct far_tensor {
  fake_tensor held;
};
template <>
struct shardmesh::adapter<far_tensor> {
  static tensor_view view(const far_tensor& t) { return adapter<fake_tensor>::view(t.held); }
  static far_tensor allocate(dtype type, const extents& sizes, device where) {
    far_tensor made{fake_tensor::make(sizes, {.type = type}, 8)};
    made.held.where = where;
    return made;
  }
};

using namespace shardmesh;

namespace {

using moves::error_on_all;
using shards::at;

far_tensor rows_on(std::int64_t rows, device where) {
  far_tensor made{fake_tensor::make({rows, 3}, {.type = dtype::float32})};
  made.held.where = where;
  return made;
}

constexpr device gpu{device_type::cuda, 1};

void names_the_device(const std::string& text) {
  INFO(text);
  CHECK(text.find("the memory is not host memory") != std::string::npos);
  CHECK(text.find("cuda:1") != std::string::npos);
  CHECK(text.find("rank") != std::string::npos);
}

sharded_tensor<far_tensor> sharded(std::int32_t rank, device where) {
  const sharded_tensor_metadata metadata{
      {at(0, {0, 0}, {2, 3}), at(1, {2, 0}, {2, 3})}, {4, 3}, {.type = dtype::float32}};
  std::vector<shard<far_tensor>> own;
  own.push_back(shard<far_tensor>::make(rows_on(2, where), metadata.shards[static_cast<std::size_t>(rank)]).value());
  return sharded_tensor<far_tensor>::make(std::move(own), metadata, rank_group::world(2), rank).value();
}

template <class R>
result<void> outcome(R made) {
  return made ? result<void>() : result<void>(std::move(made).error());
}

}  // namespace

TEST_CASE("gather, reshard, shard_tensor and redistribute refuse a device's memory on every rank") {
  const rank_group group = rank_group::world(2);
  const chunk_sharding_spec columns{.dim = 1, .placements = {{0, {}, {}}, {1, {}, {}}}};
  names_the_device(error_on_all(2, [&](any_communicator& comm) {
    return outcome(gather(sharded(comm.rank(), comm.rank() == 1 ? gpu : device{}), 0, comm));
  }));
  names_the_device(error_on_all(
      2, [&](any_communicator& comm) { return outcome(gather(sharded(comm.rank(), {}), 1, comm, {.where = gpu})); }));
  names_the_device(error_on_all(2, [&](any_communicator& comm) {
    return outcome(reshard(sharded(comm.rank(), comm.rank() == 0 ? gpu : device{}), columns, comm));
  }));
  names_the_device(error_on_all(2, [&](any_communicator& comm) {
    const far_tensor whole = rows_on(4, gpu);
    return outcome(shard_tensor(comm.rank() == 0 ? &whole : nullptr, columns, 0, comm, group));
  }));
  const device_mesh mesh = device_mesh::make(extents{2}).value();
  const layout rows = layout::make(mesh, {placement::shard(0)}, {4, 3}).value();
  const layout all = layout::make(mesh, {placement::replicate()}, {4, 3}).value();
  names_the_device(error_on_all(2, [&](any_communicator& comm) {
    const auto tensor =
        dtensor<far_tensor>::make(rows, comm.rank(), rows_on(2, comm.rank() == 1 ? gpu : device{})).value();
    return outcome(redistribute(tensor, all, comm));
  }));
}

TEST_CASE("a shard that extends beyond the tensor is named with its box, by init_from_local_shards too") {
  std::vector<std::vector<box>> boxes(2);
  const auto text = error_on_all(2, [&](any_communicator& comm) -> result<void> {
    std::vector<shard<far_tensor>> own;
    own.push_back(
        shard<far_tensor>::make(rows_on(2, {}), at(comm.rank(), {comm.rank() == 1 ? 3 : 0, 0}, {2, 3})).value());
    auto made = init_from_local_shards(std::move(own), extents{4, 3}, comm, rank_group::world(2));
    if (!made) boxes[static_cast<std::size_t>(comm.rank())] = made.error().boxes;
    if (!made && made.error().code != errc::out_of_bounds) return fail(errc::invalid_argument, "another code");
    return outcome(std::move(made));
  });
  INFO(text);
  CHECK(text.find("extends beyond the tensor") != std::string::npos);
  for (const auto& found : boxes) CHECK(found == std::vector<box>{{{3, 0}, {2, 3}}});
}
