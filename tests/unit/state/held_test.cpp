// SPDX-License-Identifier: Apache-2.0
// Tests the contents of a state dict as values that `checkpoint` saves and loads.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.state;

using namespace shardmesh;
using dict = state_dict<host_tensor>;

namespace {

host_tensor tensor(const extents& sizes, dtype type = dtype::float32) {
  return host_tensor::make(type, sizes).value();
}

shard_metadata at(const extents& offsets, const extents& sizes, std::int32_t rank) {
  return {offsets, sizes, parse_remote_device("rank:" + std::to_string(rank) + "/cpu").value()};
}

}  // namespace

TEST_CASE("a state dict holds whole tensors, the boxes of dtensors and plain values") {
  dict state;
  const std::int64_t two[] = {2};
  const device_mesh mesh = device_mesh::make(two).value();
  const layout strided = layout::make(mesh, {placement::strided_shard(0, 2)}, {8, 2}).value();
  state.set({"whole"}, tensor({3})).value();
  state.set({"strided"}, dtensor<host_tensor>::make(strided, 1, tensor({4, 2})).value()).value();
  state.set({"betas", 0}, 0.9).value();
  state.set({"betas", 1}, 0.99).value();
  state.set({"step"}, 7).value();
  const local_state held = local_view(state).value();
  REQUIRE(held.tensors.size() == 2);
  CHECK(held.tensors[0].where == path{"whole"});
  REQUIRE(held.tensors[0].parts.size() == 1);
  CHECK(held.tensors[0].parts[0].where == box{{0}, {3}});
  CHECK(held.tensors[1].shape == extents{8, 2});
  CHECK(held.tensors[1].type == dtype::float32);
  REQUIRE(held.tensors[1].parts.size() == 2);
  CHECK(held.tensors[1].parts[0].where == box{{2, 0}, {2, 2}});
  CHECK(held.tensors[1].parts[1].where == box{{6, 0}, {2, 2}});
  const tensor_view local = adapter<host_tensor>::view(state.find({"strided"})->dtensor()->local());
  CHECK(held.tensors[1].parts[1].memory.data == local.data + 2 * 2 * 4);
  REQUIRE(held.objects.size() == 2);
  CHECK(held.objects[0].where == path{"betas"});  // PyTorch keeps a list of numbers whole
  CHECK(held.objects[0].leaves == std::vector<plain_value>{0.9, 0.99});
  CHECK(held.objects[0].form.nodes().back().kind == node_kind::sequence);
  CHECK(held.objects[1].leaves == std::vector<plain_value>{std::int64_t{7}});
}

TEST_CASE("of a nested sharded tensor the innermost shards are held, at their places in the whole") {
  // [6, 4]: this rank holds rows 2 to 6, which are two shards of columns themselves.
  std::vector<shard<host_tensor>> inner, outer;
  sharded_tensor_metadata inside{{at({0, 0}, {4, 1}, 1), at({0, 1}, {4, 3}, 1)}, {4, 4}, {.type = dtype::float32}};
  inner.push_back(shard<host_tensor>::make(tensor({4, 1}), inside.shards[0]).value());
  inner.push_back(shard<host_tensor>::make(tensor({4, 3}), inside.shards[1]).value());
  auto nested = sharded_tensor<host_tensor>::make(std::move(inner), inside, rank_group::make({1}).value(), 0).value();
  sharded_tensor_metadata whole{{at({0, 0}, {2, 4}, 0), at({2, 0}, {4, 4}, 1)}, {6, 4}, {.type = dtype::float32}};
  outer.push_back(shard<host_tensor>::make(std::move(nested), whole.shards[1]).value());
  dict state;
  state.set({"w"}, sharded_tensor<host_tensor>::make(std::move(outer), whole, rank_group::world(2), 1).value()).value();
  const local_state held = local_view(state).value();
  REQUIRE(held.tensors.size() == 1);
  CHECK(held.tensors[0].shape == extents{6, 4});
  REQUIRE(held.tensors[0].parts.size() == 2);
  CHECK(held.tensors[0].parts[0].where == box{{2, 0}, {4, 1}});
  CHECK(held.tensors[0].parts[1].where == box{{2, 1}, {4, 3}});
  CHECK(held.tensors[0].parts[1].memory.sizes == extents{4, 3});
}

TEST_CASE("a const state dict holds the same, to be read: of tensors, dtensors and nested shards") {
  dict state;
  const std::int64_t two[] = {2};
  const layout rows = layout::make(device_mesh::make(two).value(), {placement::shard(0)}, {4, 2}).value();
  sharded_tensor_metadata inside{{at({0, 0}, {2, 4}, 1)}, {2, 4}, {.type = dtype::float32}};
  std::vector<shard<host_tensor>> inner, outer;
  inner.push_back(shard<host_tensor>::make(tensor({2, 4}), inside.shards[0]).value());
  auto nested = sharded_tensor<host_tensor>::make(std::move(inner), inside, rank_group::make({1}).value(), 0).value();
  sharded_tensor_metadata whole{{at({0, 0}, {2, 4}, 0), at({2, 0}, {2, 4}, 1)}, {4, 4}, {.type = dtype::float32}};
  outer.push_back(shard<host_tensor>::make(std::move(nested), whole.shards[1]).value());
  state.set({"whole"}, tensor({3})).value();
  state.set({"rows"}, dtensor<host_tensor>::make(rows, 1, tensor({2, 2})).value()).value();
  state.set({"nested"}, sharded_tensor<host_tensor>::make(std::move(outer), whole, rank_group::world(2), 1).value())
      .value();
  state.set({"step"}, 7).value();
  const host_tensor* const memory[] = {
      state.find({"whole"})->tensor(), &state.find({"rows"})->dtensor()->local(),
      &state.find({"nested"})->sharded_tensor()->local_shards()[0].nested().local_shards()[0].tensor()};
  const box boxes[] = {{{0}, {3}}, {{2, 0}, {2, 2}}, {{2, 0}, {2, 4}}};
  const const_local_state read = local_view(std::as_const(state)).value();
  const const_local_state converted = local_view(state).value();
  for (const const_local_state* held : {&read, &converted}) {
    REQUIRE(held->tensors.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(held->tensors[i].parts.size() == 1);
      CHECK(held->tensors[i].parts[0].where == boxes[i]);
      CHECK(held->tensors[i].parts[0].memory.data == memory[i]->bytes().data());
      CHECK(held->tensors[i].parts[0].memory.sizes == memory[i]->sizes());
    }
    REQUIRE(held->objects.size() == 1);
    CHECK(held->objects[0].leaves == std::vector<plain_value>{std::int64_t{7}});
  }
  CHECK(read.tensors[1].where == path{"rows"});
  CHECK(read.tensors[1].shape == extents{4, 2});
}

TEST_CASE("a Partial dtensor is refused naming its key") {
  dict state;
  const std::int64_t two[] = {2};
  const layout partial =
      layout::make(device_mesh::make(two).value(), {placement::partial(reduce_op::sum)}, {3}).value();
  state.set({"model", "grad"}, dtensor<host_tensor>::make(partial, 1, tensor({3})).value()).value();
  const auto held = local_view(state);
  REQUIRE_FALSE(held);
  CHECK(to_string(held.error()) ==
        "model.grad: a checkpoint holds values, not the terms of a Partial (rank 1); redistribute it to Replicate or "
        "Shard first");
}

TEST_CASE("objects go back into a state dict, into its containers or new ones") {
  dict state;
  state.set({"betas", 0}, 0.0).value();
  state.set({"betas", 1}, 0.0).value();
  state.set({"step"}, 0).value();
  local_state held = local_view(state).value();
  held.objects[0].leaves = {0.9, 0.99};
  held.objects[1].leaves = {std::string("seven")};
  tree_builder builder;
  builder.begin(node_kind::mapping);
  builder.leaf("a");
  builder.end();
  held.objects.push_back({{"new"}, builder.finish().value(), {true}});
  set_objects(state, held.objects).value();
  CHECK(*state.find({"betas", 1})->floating() == 0.99);
  CHECK(*state.find({"step"})->text() == "seven");
  CHECK(*state.find({"new", "a"})->boolean());
  // A container may take another form, even an empty one; later entries stay.
  tree_builder empty;
  empty.begin(node_kind::tuple);
  empty.end();
  held.objects[0] = {{"betas"}, empty.finish().value(), {}};
  set_objects(state, held.objects).value();
  CHECK(state.kind({"betas"}) == node_kind::tuple);
  CHECK(state.size() == 2);
  CHECK(*state.find({"step"})->text() == "seven");
  held.objects[0].leaves.push_back(0.5);
  CHECK(to_string(set_objects(state, held.objects).error()) ==
        "betas: the leaves of an object do not match its structure");
}
