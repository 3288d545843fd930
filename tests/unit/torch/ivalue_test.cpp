// SPDX-License-Identifier: Apache-2.0
// Tests c10::IValue as a tree: walked, flattened, rebuilt, and as a state dict.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <shardmesh/torch_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.tree;
import shardmesh.torch;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

static_assert(state_node<c10::IValue> && buildable_state_node<c10::IValue>);

namespace {

c10::IValue dict_of(std::vector<std::pair<std::string, c10::IValue>> entries) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (auto& [key, value] : entries) dict.insert(key, value);
  return dict;
}

// {"model": {"w": tensor, "layers": [1, 2.5]}, "state": (True, None, "text"), "by_index": {7: tensor}}
c10::IValue nested(const at::Tensor& tensor) {
  c10::impl::GenericDict by_index(c10::IntType::get(), c10::AnyType::get());
  by_index.insert(std::int64_t{7}, tensor);
  c10::impl::GenericList layers(c10::AnyType::get());
  layers.push_back(std::int64_t{1});
  layers.push_back(2.5);
  return dict_of({{"model", dict_of({{"w", tensor}, {"layers", layers}})},
                  {"state", c10::ivalue::Tuple::create({c10::IValue(true), c10::IValue(), c10::IValue("text")})},
                  {"by_index", by_index}});
}

}  // namespace

TEST_CASE("an IValue of nested dicts, lists and tuples is a state dict, and becomes the same IValue again") {
  const at::Tensor tensor = at::arange(4, at::kFloat);
  const auto state = state_of<at::Tensor>(nested(tensor));
  REQUIRE((state ? "" : to_string(state.error())) == "");
  std::vector<std::string> paths;
  for (const path& where : state->spec().leaf_paths()) paths.push_back(to_string(where));
  CHECK(paths == std::vector<std::string>{"model.w", "model.layers[0]", "model.layers[1]", "state[0]", "state[1]",
                                          "state[2]", "by_index[7]"});
  CHECK(state->find({"model", "w"})->tensor()->data_ptr() == tensor.data_ptr());
  CHECK(*state->find({"model", "layers", 0})->integer() == 1);
  CHECK(*state->find({"model", "layers", 1})->floating() == 2.5);
  CHECK(*state->find({"state", 0})->boolean());
  CHECK(state->find({"state", 1})->is_none());
  CHECK(*state->find({"state", 2})->text() == "text");

  const auto back = ivalue_of<c10::IValue>(*state);
  REQUIRE((back ? "" : to_string(back.error())) == "");
  CHECK(back->toGenericDict().at("state").isTuple());
  CHECK(back->toGenericDict().at("by_index").toGenericDict().at(std::int64_t{7}).toTensor().is_same(tensor));
  CHECK(*state_of<at::Tensor>(*back) == *state);
}

TEST_CASE("lists of tensors and of numbers are lists, whatever their type of element") {
  const c10::IValue typed = dict_of({{"tensors", c10::List<at::Tensor>({at::ones({1}), at::ones({2})})},
                                     {"numbers", c10::List<std::int64_t>({3, 4})}});
  const auto state = state_of<at::Tensor>(typed);
  REQUIRE(state);
  CHECK(state->find({"tensors", 1})->tensor()->numel() == 2);
  CHECK(*state->find({"numbers", 1})->integer() == 4);
}

TEST_CASE("values that a state dict cannot hold are refused by their type") {
  const auto refused = state_of<at::Tensor>(dict_of({{"where", c10::Device(c10::kCPU)}}));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK_THAT(to_string(refused.error()), ContainsSubstring("Device"));
  state_dict<at::Tensor> bytes;
  REQUIRE(bytes.set({"raw"}, std::vector<std::byte>(3)));
  CHECK_THAT(to_string(ivalue_of<c10::IValue>(bytes).error()), ContainsSubstring("bytes"));
  state_dict<at::Tensor> mixed;
  REQUIRE(mixed.set({"m", "name"}, 1));
  REQUIRE(mixed.set({"n"}, 1));
  CHECK(ivalue_of<c10::IValue>(mixed));
}
