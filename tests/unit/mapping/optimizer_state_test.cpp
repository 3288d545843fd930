// SPDX-License-Identifier: Apache-2.0
// Tests optimizer state that follows the parameters of a mapping: moments, steps, master weights, groups, and the
// errors of state that cannot follow. The whole result is compared.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensors;

namespace {

constexpr std::string_view fuse =
    "[sizes]\nn = 2\nm = 1\n[[rule]]\nname = 'fuse'\nleft.q = 'q'\nleft.k = 'k'\nright = 'qk'\nindex = 'q: n h, k: m h "
    "-> qk: h [q:n | k:m]'\n";

mapping_rules rules_of(std::string_view rest) {
  return parse_mapping("left = 'a'\nright = 'b'\n" + std::string(rest)).value();
}

result<std::unique_ptr<checkpoint_reader>> shown(const std::filesystem::path& file, tensors all,
                                                 const mapping_rules& rules, const model_sizes& sizes = {}) {
  small_tensors::write(file, all);
  return map_checkpoint(open_checkpoint(file).value(), std::vector{rules}, sizes, {.check_sums = true});
}

tensors made_by(tensors all, const mapping_rules& rules, const model_sizes& sizes = {}) {
  const scratch_folder folder;
  const auto reader = shown(folder / "a.safetensors", std::move(all), rules, sizes).value();
  tensors made = small_tensors::read_all(*reader);
  CHECK(reader->finish_checks());
  return made;
}

error refusal(tensors all, std::string_view rest) {
  const scratch_folder folder;
  auto made = shown(folder / "a.safetensors", std::move(all), rules_of(rest));
  REQUIRE_FALSE(made);
  return std::move(made).error();
}

bool has_note(const checkpoint_reader& reader, std::string_view text) {
  return std::find(reader.notes().begin(), reader.notes().end(), text) != reader.notes().end();
}

// A catalog of tensors of one shape, and of objects: names that end with "()".
catalog catalog_of(const std::vector<std::string>& names) {
  catalog made;
  for (const std::string& name : names) {
    if (name.ends_with("()")) {
      object_entry object;
      object.key = name.substr(0, name.size() - 2);
      made.objects.push_back(object);
    } else {
      tensor_entry tensor;
      tensor.key = name;
      tensor.type = dtype::float32;
      tensor.shape = extents{2};
      made.tensors.push_back(tensor);
    }
  }
  return made;
}

std::vector<std::string> keys_of(const bound_mapping& bound) {
  std::vector<std::string> made;
  for (const bound_tensor& tensor : bound.tensors) made.push_back(tensor.key);
  std::sort(made.begin(), made.end());
  return made;
}

using names = std::vector<std::string>;

}  // namespace

TEST_CASE("moments and steps of fused parameters follow them, and the inverse restores them") {
  const tensors parts{{"q", counted({2, 2}, 1)},
                      {"k", counted({1, 2}, 5)},
                      {"optim.state.q.exp_avg", counted({2, 2}, 11)},
                      {"optim.state.k.exp_avg", counted({1, 2}, 15)},
                      {"optim.state.q.step", counted({}, 7)},
                      {"optim.state.k.step", counted({}, 7)}};
  const tensors fused{{"qk", {{2, 3}, {1, 3, 5, 2, 4, 6}}},
                      {"optim.state.qk.exp_avg", {{2, 3}, {11, 13, 15, 12, 14, 16}}},
                      {"optim.state.qk.step", counted({}, 7)}};
  const mapping_rules rules = rules_of(fuse);
  CHECK(made_by(parts, rules) == fused);
  CHECK(made_by(fused, rules.inverse()) == parts);
}

TEST_CASE("state whose key ends with the parameter follows it") {
  const tensors made = made_by({{"q", counted({2, 2}, 1)},
                                {"k", counted({1, 2}, 5)},
                                {"optimizer.state.exp_avg_sq.q", counted({2, 2}, 11)},
                                {"optimizer.state.exp_avg_sq.k", counted({1, 2}, 15)}},
                               rules_of(fuse));
  CHECK(made == tensors{{"qk", {{2, 3}, {1, 3, 5, 2, 4, 6}}},
                        {"optimizer.state.exp_avg_sq.qk", {{2, 3}, {11, 13, 15, 12, 14, 16}}}});
}

TEST_CASE("steps of fused parameters that differ are refused with both parameters and values") {
  const scratch_folder folder;
  const auto reader = shown(folder / "a.safetensors",
                            {{"q", counted({2, 2})},
                             {"k", counted({1, 2})},
                             {"optim.state.q.step", counted({}, 3)},
                             {"optim.state.k.step", counted({}, 4)}},
                            rules_of(fuse))
                          .value();
  const auto read = load_tensor(*reader, "optim.state.qk.step");
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::disagreement);
  CHECK(read.error().key == "optim.state.qk.step");
  CHECK(read.error().expected == "3 of optim.state.q.step");
  CHECK(read.error().found == "4 of optim.state.k.step");
  CHECK(load_tensor(*reader, "qk"));
}

TEST_CASE("state of stacked experts is stacked, and a padded vocabulary has zeros in its moments") {
  tensors all{{"e", counted({3, 2}, 1)}, {"optim.state.e.exp_avg", counted({3, 2}, 11)}};
  tensors expected{{"p", {{4, 2}, {1, 2, 3, 4, 5, 6, 0, 0}}},
                   {"optim.state.p.exp_avg", {{4, 2}, {11, 12, 13, 14, 15, 16, 0, 0}}},
                   {"w", counted({2, 1, 2}, 0)},
                   {"optim.state.w.exp_avg", counted({2, 1, 2}, 20)},
                   {"optim.state.w.step", counted({}, 9)}};
  for (int e = 0; e < 2; ++e) {
    const std::string key = "experts." + std::to_string(e);
    all[key] = counted({1, 2}, static_cast<float>(2 * e));
    all["optim.state." + key + ".exp_avg"] = counted({1, 2}, static_cast<float>(20 + 2 * e));
    all["optim.state." + key + ".step"] = counted({}, 9);
  }
  const scratch_folder folder;
  const auto reader = shown(folder / "a.safetensors", all,
                            rules_of("[captures]\nexpert = 2\n[sizes]\nv = 3\npad = 1\n"
                                     "[[rule]]\nleft = 'e'\nright = 'p'\nindex = 'w: v h -> p: [w:v | _:pad] h'\n"
                                     "[[rule]]\nleft = 'experts.{expert}'\nright = 'w'\nindex = 'w: f h -> s: expert f "
                                     "h'\n"))
                          .value();
  CHECK(small_tensors::read_all(*reader) == expected);
  CHECK(has_note(*reader, "4 elements that the mapping fills with zeros"));
  CHECK(has_note(*reader, "5 entries of optimizer state follow the parameters"));
}

TEST_CASE("operations on values refuse optimizer state, or keep its values, and change master weights") {
  constexpr std::string_view add = "[[rule]]\nname = 'norm'\nleft = 'w'\nright = 'v'\nvalues = ['x + 1']\n";
  const tensors all{{"w", counted({2}, 1)},
                    {"optim.state.w.exp_avg", counted({2}, 5)},
                    {"optim.state.w.fp32_param", counted({2}, 1)},
                    {"optim.state.w.step", counted({}, 2)}};
  const error refused = refusal(all, add);
  CHECK(refused.code == errc::unsupported);
  CHECK(refused.key == "optim.state.w.exp_avg");
  CHECK(refused.problem_count() == 1);
  CHECK(refused.message.starts_with("the rule 'norm' (line "));
  CHECK(refused.hint.find("values = \"keep\"") != std::string::npos);
  const mapping_rules keep = rules_of(std::string(add) + "[optimizer]\nvalues = 'keep'\n");
  const tensors expected{{"v", counted({2}, 2)},
                         {"optim.state.v.exp_avg", counted({2}, 5)},
                         {"optim.state.v.fp32_param", counted({2}, 2)},
                         {"optim.state.v.step", counted({}, 2)}};
  CHECK(made_by(all, keep) == expected);
  CHECK(made_by(expected, keep.inverse()) == all);
}

TEST_CASE("the prefix of the model's keys stays out of the optimizer's names") {
  const auto state_of = [](std::string_view rename) {
    return made_by({{"model.w", counted({2})}, {"optim.state.w.exp_avg", counted({2}, 5)}},
                   rules_of("[rename]\n" + std::string(rename) + "\n"));
  };
  CHECK(state_of("'model.w' = 'model.v'") ==
        tensors{{"model.v", counted({2})}, {"optim.state.v.exp_avg", counted({2}, 5)}});
  CHECK(state_of("'model.w' = 'v'") == tensors{{"v", counted({2})}, {"optim.state.v.exp_avg", counted({2}, 5)}});
}

TEST_CASE("each mapping of a chain takes the optimizer state along") {
  const scratch_folder folder;
  tensors all{{"a", counted({2, 1}, 1)}, {"optim.state.a.exp_avg", counted({2, 1}, 5)}};
  small_tensors::write(folder / "a.safetensors", all);
  const std::vector<mapping_rules> chain{rules_of("[rename]\n'a' = 'b'\n"),
                                         rules_of("[[rule]]\nleft = 'b'\nright = 'c'\nindex = 'w: r c -> v: c r'\n")};
  const auto reader = map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), chain, {}).value();
  CHECK(small_tensors::read_all(*reader) ==
        tensors{{"c", counted({1, 2}, 1)}, {"optim.state.c.exp_avg", counted({1, 2}, 5)}});
}

TEST_CASE("optimizer state that cannot follow is refused with its key") {
  const tensors parameters{{"q", counted({2, 2})}, {"k", counted({1, 2})}};
  const auto with = [&](const tensors& state) {
    tensors all = parameters;
    all.insert(state.begin(), state.end());
    return refusal(all, fuse);
  };
  SECTION("one of the fused parameters lacks it") {
    const error e = with({{"optim.state.q.exp_avg", counted({2, 2})}});
    CHECK(e.code == errc::missing_key);
    CHECK(e.key == "k");
    CHECK(e.expected == "'exp_avg' of all 2 tensors");
    CHECK(e.found == "that of 1");
    CHECK(e.problem_count() == 1);
  }
  SECTION("its shape is not that of the parameter") {
    const error e = with({{"optim.state.q.row_var", counted({2})}, {"optim.state.k.row_var", counted({2})}});
    CHECK(e.code == errc::unsupported);
    CHECK(e.key == "optim.state.q.row_var");
    CHECK(e.expected == "[2, 2]");
    CHECK(e.found == "[2]");
  }
  SECTION("it names no parameter") {
    const error e = with({{"optim.state.0.exp_avg", counted({2, 2})}});
    CHECK(e.code == errc::unsupported);
    CHECK(e.key == "optim.state.0.exp_avg");
    CHECK(e.problem_count() == 1);
    CHECK(e.hint.find("--no-optimizer") != std::string::npos);
  }
  SECTION("its parameter is tied to a tensor without such state") {
    const error e = refusal({{"w", counted({2})}, {"head", counted({2})}, {"optim.state.head.exp_avg", counted({2})}},
                            "[rename]\n'w' = 'v'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'w'\n");
    CHECK(e.code == errc::missing_key);
    CHECK(e.key == "optim.state.head.exp_avg");
    CHECK(e.problem_count() == 1);
  }
  SECTION("it would get the name of another entry") {
    const error e = refusal({{"w", counted({2})}, {"x", counted({2})}, {"optim.state.w.exp_avg", counted({2})}},
                            "[rename]\n'w' = 'v'\n'x' = 'optim.state.v.exp_avg'\n");
    CHECK(e.code == errc::duplicate_key);
    CHECK(e.key == "optim.state.v.exp_avg");
  }
}

TEST_CASE("state of any shape follows a renamed parameter") {
  CHECK(made_by({{"w", counted({3, 2})}, {"optim.state.w.row_var", counted({3}, 5)}},
                rules_of("[rename]\n'w' = 'v'\n")) ==
        tensors{{"v", counted({3, 2})}, {"optim.state.v.row_var", counted({3}, 5)}});
}

TEST_CASE("state of ignored and tied tensors is left out with them, and a rule may use state itself") {
  const scratch_folder folder;
  const auto reader = shown(folder / "a.safetensors",
                            {{"w", counted({2}, 1)},
                             {"head", counted({2}, 1)},
                             {"freq", counted({1})},
                             {"optim.state.w.exp_avg", counted({2}, 5)},
                             {"optim.state.head.exp_avg", counted({2}, 5)},
                             {"optim.state.freq.exp_avg", counted({1})},
                             {"optim.state.w.exp_avg_sq", counted({2}, 8)}},
                            rules_of("[rename]\n'w' = 'v'\n'optim.state.w.exp_avg_sq' = 'squares'\n[[tie]]\nside = "
                                     "'left'\nname = 'head'\nsame_as = 'w'\n[[ignore]]\nside = 'left'\nname = "
                                     "'freq'\nreason = 'computed'\n"))
                          .value();
  CHECK(small_tensors::read_all(*reader) ==
        tensors{{"v", counted({2}, 1)}, {"optim.state.v.exp_avg", counted({2}, 5)}, {"squares", counted({2}, 8)}});
  CHECK(has_note(*reader, "optim.state.freq.exp_avg is not used: optimizer state of freq"));
  CHECK(has_note(*reader, "optim.state.head.exp_avg is not used: tied to optim.state.w.exp_avg"));
  CHECK(reader->finish_checks());
  const auto differs = shown(folder / "b.safetensors",
                             {{"w", counted({2})},
                              {"head", counted({2})},
                              {"optim.state.w.exp_avg", counted({2}, 5)},
                              {"optim.state.head.exp_avg", counted({2}, 6)}},
                             rules_of("[rename]\n'w' = 'v'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'w'\n"))
                           .value();
  const auto checked = differs->finish_checks();
  REQUIRE_FALSE(checked);
  CHECK(checked.error().key == "optim.state.head.exp_avg");
}

TEST_CASE("tensors of an optimizer that belong to no parameter stay as they are") {
  const scratch_folder folder;
  const auto reader = shown(folder / "a.safetensors",
                            {{"w", counted({2})},
                             {"optim.state.w.exp_avg", counted({2}, 5)},
                             {"optim.param_groups.0.lr", counted({}, 3)}},
                            rules_of("[rename]\n'w' = 'v'\n"))
                          .value();
  CHECK(small_tensors::read_all(*reader) == tensors{{"v", counted({2})},
                                                    {"optim.state.v.exp_avg", counted({2}, 5)},
                                                    {"optim.param_groups.0.lr", counted({}, 3)}});
  CHECK(has_note(*reader, "1 tensor of an optimizer unchanged: no parameter in the name"));
}

TEST_CASE("objects of parameters and lists of their names are bound to the new names") {
  constexpr std::string_view join =
      "[sizes]\nn = 2\n[[rule]]\nleft.q = 'q'\nleft.k = 'k'\nright = 'qk'\nindex = 'q: n, k: n -> qk: [q:n | k:n]'\n"
      "[[ignore]]\nside = 'left'\nname = 'freq'\nreason = 'computed'\n";
  const catalog source = catalog_of({"q", "k", "freq", "optim.state.q.exp_avg", "optim.state.k.exp_avg",
                                     "optim.param_groups.q.lr()", "optim.param_groups.k.lr()",
                                     "optim.param_groups.freq.lr()", "optim.param_groups.0.params()", "epoch()"});
  const bound_mapping bound = bind_mapping(rules_of(join), source, {}).value();
  CHECK(keys_of(bound) == names{"optim.state.qk.exp_avg", "qk"});
  REQUIRE(bound.objects.size() == 1);
  CHECK(bound.objects[0].key == "optim.param_groups.qk.lr");
  CHECK(bound.objects[0].sources == std::vector<std::size_t>{0, 1});
  CHECK(bound.unused_objects == std::vector<std::size_t>{2});
  REQUIRE(bound.lists.size() == 1);
  CHECK(bound.lists[0].object == 3);
  CHECK(bound.followed_entries == 4);
}

TEST_CASE("objects of a tied parameter are left out only if its partner has such objects") {
  const mapping_rules rules = rules_of("[rename]\n'w' = 'v'\n[[tie]]\nside = 'left'\nname = 'head'\nsame_as = 'w'\n");
  const catalog both = catalog_of({"w", "head", "optim.param_groups.w.lr()", "optim.param_groups.head.lr()"});
  CHECK(bind_mapping(rules, both, {}).value().unused_objects == std::vector<std::size_t>{1});
  const auto alone = bind_mapping(rules, catalog_of({"w", "head", "optim.param_groups.head.lr()"}), {});
  REQUIRE_FALSE(alone);
  CHECK(alone.error().code == errc::missing_key);
  CHECK(alone.error().key == "optim.param_groups.head.lr");
}

TEST_CASE("a mapping file says what happens to the values of optimizer state") {
  CHECK(rules_of("").optimizer_values == state_values::refuse);
  CHECK(rules_of("[optimizer]\nvalues = 'refuse'\n").optimizer_values == state_values::refuse);
  CHECK(rules_of("[optimizer]\nvalues = 'keep'\n").inverse().optimizer_values == state_values::keep);
  const auto wrong = [](std::string_view text) {
    const auto parsed = parse_mapping("left = 'a'\nright = 'b'\n" + std::string(text), "mine.toml");
    REQUIRE_FALSE(parsed);
    return to_string(parsed.error());
  };
  CHECK(
      wrong("[optimizer]\nvalues = 'drop'\n") ==
      "mine.toml: line 4, column 10: the treatment of optimizer state is unknown: expected refuse or keep, found drop");
  CHECK(wrong("optimizer = 1\n") == "mine.toml: line 3, column 13: 'optimizer' must be a table: write [optimizer]");
  CHECK(wrong("[optimizer]\nvalue = 'keep'\n").find("the key 'value' is unknown") != std::string::npos);
}
