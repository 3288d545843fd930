// SPDX-License-Identifier: Apache-2.0
// Tests that a state in memory is saved under another naming convention, and loaded back into the first one.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;
import shardmesh.tree;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensors;

namespace {

constexpr std::string_view fuse =
    "left = 'a'\nright = 'b'\n[sizes]\nn = 2\nm = 1\n[rename]\n'w' = 'v'\n[[rule]]\nname = 'fuse'\nleft.q = "
    "'q'\nleft.k "
    "= 'k'\nright = 'qk'\nindex = 'q: n h, k: m h -> qk: h [q:n | k:m]'\n";

std::vector<mapping_rules> rules_of(std::string_view text) {
  return {parse_mapping(text).value()};
}

const_local_state state_of(tensors& all) {
  const_local_state made;
  for (auto& [key, one] : all)
    made.tensors.push_back(
        {path{key}, one.shape, dtype::float32, {{box::whole(one.shape), small_tensors::view_of(one)}}, {}});
  return made;
}

const tensors parts{{"q", counted({2, 2}, 1)}, {"k", counted({1, 2}, 5)}, {"w", counted({3}, 7)}};
const tensors fused{{"qk", {{2, 3}, {1, 3, 5, 2, 4, 6}}}, {"v", counted({3}, 7)}};

}  // namespace

TEST_CASE("a state is saved under the other names in every format, and loaded back into its own") {
  const scratch_folder folder;
  tensors all = parts;
  const_local_state state = state_of(all);
  state.objects.push_back({path{std::string("epoch")}, {}, {plain_value{std::int64_t{3}}}});
  const std::vector<std::pair<target_format, std::string>> targets{
      {target_format::safetensors, "a.safetensors"}, {target_format::dcp, "folder"}, {target_format::pt, "a.pt"}};
  for (const auto& [format, name] : targets) {
    INFO(name);
    const auto report =
        save_mapped(folder / name, state, rules_of(fuse), {}, {.format = format, .durable = false}).value();
    CHECK(report.tensors == 2);
    CHECK(report.objects == 1);
    auto saved = open_checkpoint(folder / name).value();
    CHECK(small_tensors::read_all(*saved) == fused);
    if (format != target_format::safetensors) CHECK(saved->contents().find_object("epoch") != nullptr);
    const std::vector<mapping_rules> back{rules_of(fuse)[0].inverse()};
    auto shown = map_checkpoint(std::move(saved), back, {}).value();
    tensors loaded = parts;
    for (auto& [key, one] : loaded) {
      std::fill(one.values.begin(), one.values.end(), 0.0F);
      REQUIRE(load_into(*shown, key, box::whole(one.shape), small_tensors::view_of(one)));
    }
    CHECK(loaded == parts);
  }
}

TEST_CASE("parts and strides of tensors in memory are read where they lie, and the selection has the new names") {
  const scratch_folder folder;
  tensors all{{"q", counted({2, 2}, 1)}, {"k", counted({1, 2}, 5)}, {"w", counted({3, 2}, 7)}};
  std::vector<save_tensor> state;
  for (auto& [key, one] : all) {
    save_tensor made{key, {}, one.shape, {}};
    for (const box& where : small_tensors::rows_of(one.shape, 2))
      made.parts.push_back({where, subview(small_tensors::view_of(one), where), 0});
    state.push_back(std::move(made));
  }
  // The transposed tensor, as a view of the same memory.
  save_tensor turned{"t", {}, {2, 3}, {}};
  const tensor_view whole = small_tensors::view_of(all.at("w"));
  turned.parts.push_back({box::whole({2, 3}), const_tensor_view{whole.data, whole.type, {}, {2, 3}, {1, 2}}, 0});
  state.push_back(std::move(turned));
  const std::string rules = std::string(fuse) + "[[rule]]\nleft = 't'\nright = 'turned'\n";
  convert_options options{.durable = false};
  options.selection.skip.push_back(key_pattern::compile("v").value());
  const auto report = save_mapped(folder / "a.safetensors", state, {}, rules_of(rules), {}, options).value();
  CHECK(report.excluded == 1);
  auto saved = open_checkpoint(folder / "a.safetensors").value();
  CHECK(small_tensors::read_all(*saved) ==
        tensors{{"qk", {{2, 3}, {1, 3, 5, 2, 4, 6}}}, {"turned", {{2, 3}, {7, 9, 11, 8, 10, 12}}}});
}

TEST_CASE("many tensors in memory are saved, each with the chunks of its own parts") {
  const scratch_folder folder;
  tensors all, renamed;
  for (std::int64_t i = 0; i < 100; ++i) {
    const tensors::mapped_type one = counted({1 + i % 3, 2}, static_cast<float>(i));
    all.emplace("w." + std::to_string(i), one);
    renamed.emplace("v." + std::to_string(i), one);
  }
  constexpr std::string_view rules = "left = 'a'\nright = 'b'\n[captures]\ni = 100\n[rename]\n'w.{i}' = 'v.{i}'\n";
  const auto report = save_mapped(folder / "folder", state_of(all), rules_of(rules), {},
                                  {.format = target_format::dcp, .durable = false})
                          .value();
  CHECK(report.tensors == 100);
  auto saved = open_checkpoint(folder / "folder").value();
  CHECK(small_tensors::read_all(*saved) == renamed);
  CHECK(saved->contents().chunk_places.size() == 100);
}

TEST_CASE("a state that cannot be saved under the other names is refused, and nothing is written") {
  const scratch_folder folder;
  const auto refusal = [&](std::vector<save_tensor> state, std::string_view rules) {
    const auto saved = save_mapped(folder / "a.safetensors", state, {}, rules_of(rules), {}, {.durable = false});
    REQUIRE_FALSE(saved);
    CHECK(std::filesystem::is_empty(folder.path));
    return saved.error();
  };
  tensors all{{"w", counted({4}, 1)}, {"head", counted({4}, 2)}};
  const auto whole = [&](const std::string& key) {
    tensor_view view = small_tensors::view_of(all.at(key));
    return save_tensor{key, {}, view.sizes, {{box::whole(view.sizes), view, 0}}};
  };
  constexpr std::string_view rename = "left = 'a'\nright = 'b'\n[rename]\n'w' = 'v'\n";
  SECTION("a tensor that no rule uses") {
    const error e = refusal({whole("w"), whole("head")}, rename);
    CHECK(e.code == errc::missing_key);
    CHECK(e.key == "head");
  }
  SECTION("tied tensors that differ") {
    const error e = refusal({whole("w"), whole("head")},
                            std::string(rename) + "[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'w'\n");
    CHECK(e.code == errc::disagreement);
    CHECK(e.key == "head");
  }
  SECTION("parts that leave a gap") {
    save_tensor cut = whole("w");
    cut.parts[0].where = {{0}, {3}};
    cut.parts[0].from.sizes = {3};
    const error e = refusal({cut}, rename);
    CHECK(e.code == errc::gap);
    CHECK(e.key == "w");
  }
  SECTION("memory of other sizes than the box") {
    save_tensor cut = whole("w");
    cut.parts[0].from.sizes = {3};
    CHECK(refusal({cut}, rename).code == errc::shape_mismatch);
  }
  SECTION("a negative stride") {
    save_tensor turned = whole("w");
    turned.parts[0].from.strides = {-1};
    CHECK(refusal({turned}, rename).code == errc::unsupported);
  }
  SECTION("two tensors of one name") {
    CHECK(refusal({whole("w"), whole("w")}, rename).code == errc::duplicate_key);
  }
  SECTION("an empty destination") {
    const auto saved = save_mapped("", std::vector{whole("w")}, {}, rules_of(rename), {}, {.durable = false});
    REQUIRE_FALSE(saved);
    CHECK(saved.error().code == errc::invalid_argument);
  }
}
