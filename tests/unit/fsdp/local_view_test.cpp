// SPDX-License-Identifier: Apache-2.0
// Tests the parts of an FSDP model that a rank holds in place. Every box lies inside the flat shards, at the right
// elements, and the boxes of all ranks cover each parameter once. Also tests names, tied parameters, buffers in other
// dtypes, and refusals. See tests/unit/state_checkpoint/local_model_view_test.cpp for files.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "random_seed.hpp"

#include "parallel_models.hpp"
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

// Checks that the view of `part` stays inside `memory` and shows the elements of its box; `first` is the parameter's
// first element.
std::string check_part(const local_part& part, const extents& shape, std::int64_t first,
                       const std::vector<std::vector<std::int64_t>>& memory) {
  std::string wrong;
  indices::for_each_in(box::whole(part.where.sizes), [&](const extents& at) {
    const auto* place = reinterpret_cast<const std::int64_t*>(part.memory.data);
    extents index = part.where.offsets;
    for (std::size_t d = 0; d < at.rank(); ++d) {
      place += at[d] * part.memory.strides[d];
      index[d] += at[d];
    }
    const bool is_inside = std::any_of(memory.begin(), memory.end(), [&](const std::vector<std::int64_t>& one) {
      return place >= one.data() && place < one.data() + one.size();
    });
    if (!is_inside)
      wrong = "a view leaves the shards";
    else if (*place != first + indices::row_major(index, shape))
      wrong = "a view shows another element";
  });
  return wrong;
}

// Whether the boxes of all ranks, equal or disjoint, cover the whole.
bool are_the_whole(std::vector<box> boxes, const extents& shape) {
  std::sort(boxes.begin(), boxes.end());
  boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
  std::map<std::int64_t, int> times;
  for (const box& b : boxes)
    indices::for_each_in(b, [&](const extents& index) { ++times[indices::row_major(index, shape)]; });
  std::int64_t cells = 0;
  indices::for_each_in(box::whole(shape), [&](const extents&) { ++cells; });
  return std::cmp_equal(times.size(), cells) &&
         std::all_of(times.begin(), times.end(), [](const auto& one) { return one.second == 1; });
}

// A one-rank model: two parameters, a third name that is tied to one of them, a buffer, and an ignored parameter.
struct tied_model {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<double> ignored = {8, 9};
  std::vector<std::int64_t> buffer = {10, 11, 12};
  fsdp_model model;

  tied_model() {
    model.units.push_back({"net", flat_parameter::make({{"w", {2, 3}, {}}, {"b", {2}, {}}}, {{"again", "w"}}).value(),
                           shard_group(), view(memory, dtype::float32)});
    model.tensors.push_back({"count", view(buffer, dtype::int64), dtype::int32});
    model.tensors.push_back({"fixed", view(ignored, dtype::float64), dtype::float32, true});
    model.order = {"net.again", "count", "net.w"};
    model.key_prefix = "m.";
  }
  tied_model(const tied_model&) = delete;
  template <class T>
  static tensor_view view(std::vector<T>& of, dtype type) {
    return {reinterpret_cast<std::byte*>(of.data()), type, {}, {static_cast<std::int64_t>(of.size())}, {1}};
  }
};

template <class Held>
std::vector<std::string> keys(const Held& held) {
  std::vector<std::string> all;
  for (const auto& tensor : held.tensors) all.push_back(dotted(tensor.where));
  return all;
}

template <class T>
std::vector<T> values(const const_tensor_view& view) {
  const auto* first = reinterpret_cast<const T*>(view.data);
  return {first, first + numel(view)};
}

std::string refusal(const fsdp_model& model, std::int32_t rank) {
  const auto held = local_view(model, rank);
  return held ? "nothing is refused" : to_string(held.error());
}

}  // namespace

TEST_CASE("a rank's range of a flat parameter is held as boxes that are contiguous in its shard") {
  std::vector<float> memory(5);
  fsdp_model model;
  model.units.push_back(
      {"", flat_parameter::make({{"weight", {5, 3}, {}}, {"bias", {5}, {}}}, {}, {.group_size = 4}).value(),
       shard_group::world(4), tied_model::view(memory, dtype::float32)});
  // Elements 5 to 9 of the weight: the end of row 1, row 2, the beginning of row 3.
  const local_state held = local_view(model, 1).value().to_load();
  REQUIRE(keys(held) == std::vector<std::string>{"weight", "bias"});
  const local_state_tensor& weight = held.tensors[0];
  CHECK(weight.shape == extents{5, 3});
  REQUIRE(weight.parts.size() == 3);
  const auto check = [&](std::size_t part, const box& where, std::int64_t begin) {
    CHECK(weight.parts[part].where == where);
    CHECK(weight.parts[part].memory.sizes == where.sizes);
    CHECK(weight.parts[part].memory.data == reinterpret_cast<std::byte*>(memory.data() + begin));
  };
  check(0, {{1, 2}, {1, 1}}, 0);
  check(1, {{2, 0}, {1, 3}}, 1);
  check(2, {{3, 0}, {1, 1}}, 4);
  CHECK(held.tensors[1].parts.empty());  // a known tensor, held by other ranks
}

TEST_CASE("random models: what ranks hold in place is every parameter once, and lies in their flat shards") {
  for (const std::uint64_t seed : random_seed::seeds(150)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<std::int32_t>(1 + random() % 6);
    const auto parameters = flat_models::random_wanted(random);
    const auto layout = flat_models::random_layout(random, parameters, ranks);
    std::map<std::string, std::vector<box>> boxes;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const flat_models::rank_model mine(layout, parameters, rank, true);
      const local_state held = local_view(mine.model, rank).value().to_load();
      REQUIRE(held.tensors.size() == parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        CHECK(held.tensors[i].where == path{parameters[i].key});
        CHECK(held.tensors[i].shape == parameters[i].shape);
        for (const local_part& part : held.tensors[i].parts) {
          CHECK(check_part(part, parameters[i].shape, parameters[i].first, mine.memory) == "");
          boxes[parameters[i].key].push_back(part.where);
        }
      }
    }
    for (const auto& w : parameters) CHECK(are_the_whole(boxes[w.key], w.shape));
  }
}

TEST_CASE("random models under tensor parallelism: boxes are of whole parameters, replicas are equal boxes") {
  for (const std::uint64_t seed : random_seed::seeds(100)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const auto parameters = parallel_models::random_wanted(random);
    const auto layout = parallel_models::random_layout(random, parameters);
    std::map<std::string, std::vector<box>> boxes;
    for (std::int32_t rank = 0; rank < parallel_models::world; ++rank) {
      const parallel_models::rank_model mine(layout, parameters, rank, true);
      const const_local_state held = local_view(mine.model, rank).value().to_save().value();
      for (const const_local_state_tensor& tensor : held.tensors) {
        const std::string key = dotted(tensor.where);
        const auto& w = parallel_models::find(parameters, key);
        CHECK(tensor.shape == w.shape);
        for (const const_local_part& part : tensor.parts) {
          const local_part same{
              part.where,
              {const_cast<std::byte*>(part.memory.data), part.memory.type, {}, part.memory.sizes, part.memory.strides}};
          CHECK(check_part(same, w.shape, w.first, mine.memory) == "");
          boxes[key].push_back(part.where);
        }
      }
    }
    for (const auto& w : parameters) {
      CHECK(are_the_whole(boxes[w.key], w.shape));
      if (!w.shared.empty()) CHECK(boxes[w.shared] == boxes[w.key]);
    }
  }
}

TEST_CASE("to_save has every name in the order of the state dict, and buffers in the dtype that they are saved in") {
  tied_model mine;
  local_model_view held = local_view(mine.model, 0, {.under = {"state"}}).value();
  const const_local_state saved = held.to_save().value();
  CHECK(keys(saved) == std::vector<std::string>{"state.m.net.again", "state.m.count", "state.m.net.w", "state.m.net.b",
                                                "state.m.fixed"});
  CHECK(saved.tensors[0].where == path{"state", "m.net.again"});
  CHECK(saved.tensors[0].parts[0].memory.data == saved.tensors[2].parts[0].memory.data);
  CHECK(saved.tensors[1].type == dtype::int32);
  CHECK(values<std::int32_t>(saved.tensors[1].parts[0].memory) == std::vector<std::int32_t>{10, 11, 12});
  CHECK(saved.tensors[4].type == dtype::float64);  // FSDP ignores it, so it keeps its dtype
  mine.buffer = {20, 21, 22};
  CHECK(values<std::int32_t>(held.to_save().value().tensors[1].parts[0].memory) ==
        std::vector<std::int32_t>{20, 21, 22});
}

TEST_CASE("to_load has every memory once, under a name that the checkpoint has") {
  tied_model mine;
  const local_model_view held = local_view(mine.model, 0).value();
  const auto names = [&](std::vector<std::string_view> there) {
    return keys(
        held.to_load([&](std::string_view key) { return std::find(there.begin(), there.end(), key) != there.end(); }));
  };
  const std::vector<std::string> own = {"m.count", "m.net.w", "m.net.b", "m.fixed"};
  CHECK(keys(held.to_load()) == own);
  CHECK(names({"m.net.w", "m.net.again"}) == own);
  CHECK(names({}) == own);  // so that the error can name it
  CHECK(names({"m.net.again"}) == std::vector<std::string>{"m.net.again", "m.count", "m.net.b", "m.fixed"});
  CHECK(held.to_load().tensors[0].type == dtype::int64);  // the dtype of the memory
  CHECK(held.to_load().tensors[0].parts[0].memory.data == reinterpret_cast<std::byte*>(mine.buffer.data()));
}

TEST_CASE("what is no model of this rank is refused naming key and rank") {
  tied_model mine;
  CHECK(refusal(mine.model, 1) == "this rank is not in the communicator of the units: expected 0 to 0, found 1");
  mine.model.units[0].shard.sizes = {7};
  CHECK(
      refusal(mine.model, 0) ==
      "m.net.again: a flat shard must be 1-D and hold its rank's elements, with or without padding (rank 0): expected "
      "[8], found [7]");
  mine.model.units[0].shard.sizes = {8};
  mine.model.units[0].shard.type = dtype::int32;
  CHECK(
      refusal(mine.model, 0) ==
      "m.net.again: the flat shard has a different dtype than its parameters (rank 0): expected float32, found int32");
  mine.model.units.push_back({"other", flat_parameter(), shard_group::world(2), {}});
  CHECK(refusal(mine.model, 0).starts_with("other: the groups of two units are over different communicators"));
}
