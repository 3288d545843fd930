// SPDX-License-Identifier: Apache-2.0
// Tests the steps from what a user names to a mapped checkpoint: mappings by their conventions or their file, the
// configuration beside a checkpoint, and several mappings in a row.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;
using small_tensors::counted;
using small_tensors::tensors;

namespace {

void write_text(const std::filesystem::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a mapping is named by two conventions, and several are chained") {
  const auto one = choose_mappings("hf.llama:meta.llama").value();
  REQUIRE(one.size() == 1);
  CHECK(one[0].left == "hf.llama");
  const auto chain = choose_mappings("meta.llama:megatron.gpt").value();
  REQUIRE(chain.size() == 2);
  CHECK(chain[0].left == "meta.llama");
  CHECK(chain[1].right == "megatron.gpt");
}

TEST_CASE("a mapping is named by the path of its file, and applied in either direction") {
  const scratch_folder folder;
  for (const char* const name : {"own.toml", "own"}) {  // the second is a path because of its slashes
    const std::filesystem::path file = folder / name;
    write_text(file, "left = 'a'\nright = 'b'\n[rename]\n'x' = 'y'\n");
    const auto there = choose_mappings(file.string()).value();
    REQUIRE(there.size() == 1);
    CHECK(there[0].left == "a");
    const auto back = choose_mappings(file.string(), true).value();
    REQUIRE(back.size() == 1);
    CHECK(back[0].left == "b");
    CHECK(back[0].rules[0].left[0].name.text() == "y");
  }
  const auto missing = choose_mappings((folder / "no.toml").string());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::io);
  CHECK(says(to_string(missing.error()), "no.toml"));
}

TEST_CASE("wrong names of mappings are refused with the known ones") {
  for (const char* const wrong : {"hf.llama:nothing", "hf.llama", "", "hf.llama:"}) {
    const auto refused = choose_mappings(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(says(refused.error().hint, "megatron.gpt"));
  }
  const auto inverse = choose_mappings("hf.llama:meta.llama", true);
  REQUIRE_FALSE(inverse);
  CHECK(inverse.error().code == errc::invalid_argument);
  CHECK(inverse.error().found == "hf.llama:meta.llama");
  CHECK(says(inverse.error().hint, "swap"));
}

TEST_CASE("a misspelt convention is refused with the nearest name") {
  for (const auto& [wrong, name, meant] : {std::tuple("hf.lama:megatron.gpt", "hf.lama", "hf.llama"),
                                           std::tuple("hf.llama:megatron.gtp", "megatron.gtp", "megatron.gpt")}) {
    const auto refused = choose_mappings(wrong);
    REQUIRE_FALSE(refused);
    CHECK(to_string(refused.error()) ==
          "no convention is called '" + std::string(name) + "'; did you mean " + meant + "?");
  }
  CHECK(to_string(shipped_mapping_text("hf.lama:megatron.gpt").error()) ==
        "there is no text of a mapping 'hf.lama:megatron.gpt'; did you mean hf.llama:megatron.gpt?");
  CHECK(shipped_mapping_text("meta.llama:megatron.gpt").error().hint ==
        "request the texts of the mappings in its chain: hf.llama:meta.llama, hf.llama:megatron.gpt");
}

TEST_CASE("the text of a shipped mapping is found by its name in either order") {
  const std::string_view text = shipped_mapping_text("hf.llama:meta.llama").value();
  CHECK(parse_mapping(text).value().left == "hf.llama");
  CHECK(shipped_mapping_text("meta.llama:hf.llama").value() == text);
  const auto chain = shipped_mapping_text("meta.llama:megatron.gpt");
  REQUIRE_FALSE(chain);
  CHECK(says(chain.error().message, "meta.llama:megatron.gpt"));
  CHECK(says(chain.error().hint, "hf.llama:megatron.gpt"));
}

TEST_CASE("sizes are those of the configuration beside a checkpoint, or of the given one") {
  const scratch_folder folder;
  const auto size_of = [](const model_sizes& sizes, std::string_view name) {
    const auto found = sizes.config.find(name);
    return found == sizes.config.end() ? -1 : found->second;
  };
  CHECK(read_model_sizes(folder.path).value().config.empty());
  write_text(folder / "params.json", R"({"dim": 6})");
  CHECK(size_of(read_model_sizes(folder.path).value(), "dim") == 6);
  write_text(folder / "config.json", R"({"hidden_size": 4})");
  CHECK(size_of(read_model_sizes(folder.path).value(), "hidden_size") == 4);
  CHECK(size_of(read_model_sizes(folder / "model.safetensors").value(), "hidden_size") == 4);
  CHECK(read_model_sizes(folder.path).value().config_file == folder / "config.json");
  CHECK(size_of(read_model_sizes(folder.path, folder / "params.json").value(), "hidden_size") == -1);
  CHECK(size_of(read_model_sizes(folder.path, folder / "params.json").value(), "dim") == 6);
  write_text(folder / "config.json", "[");
  const auto damaged = read_model_sizes(folder.path);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code == errc::bad_format);
  CHECK(says(damaged.error().file, "config.json"));
}

TEST_CASE("the sizes of a params.json also have Hugging Face's names") {
  const scratch_folder folder;
  write_text(folder / "params.json",
             R"({"dim": 6, "n_layers": 2, "n_heads": 3, "n_kv_heads": 1, "hidden_dim": 9, "vocab_size": -1})");
  CHECK(read_config(folder / "params.json").value() == named_sizes{{"dim", 6},
                                                                   {"hidden_dim", 9},
                                                                   {"hidden_size", 6},
                                                                   {"intermediate_size", 9},
                                                                   {"n_heads", 3},
                                                                   {"n_kv_heads", 1},
                                                                   {"n_layers", 2},
                                                                   {"num_attention_heads", 3},
                                                                   {"num_hidden_layers", 2},
                                                                   {"num_key_value_heads", 1}});
  // Names that are there stay as they are, as do those of other configurations.
  write_text(folder / "params.json", R"({"dim": 6, "n_layers": 2, "hidden_size": 5, "vocab_size": 8})");
  CHECK(read_config(folder / "params.json").value() ==
        named_sizes{{"dim", 6}, {"hidden_size", 5}, {"n_layers", 2}, {"num_hidden_layers", 2}, {"vocab_size", 8}});
  write_text(folder / "config.json", R"({"n_layers": 2, "vocab_size": -1})");
  CHECK(read_config(folder / "config.json").value() == named_sizes{{"n_layers", 2}, {"vocab_size", -1}});
}

TEST_CASE("the numbers, texts, and lists of a configuration are named") {
  const scratch_folder folder;
  write_text(folder / "config.json", R"({
    "hidden": 8, "tied": true, "act": "silu", "odd": "a-b", "empty": "", "ratio": 0.5, "whole": 1.0, "none": null,
    "types": ["full", "sliding.window", 3, -1, true, null, [4], {"x": 5}, 0.5, 18446744073709551615],
    "text": {"experts": [2, 2], "kind": "moe"}, "no": []
  })");
  const named_sizes expected{{"hidden", 8},
                             {"tied", 1},
                             {"act.silu", 1},
                             {"ratio.fraction", 1},
                             {"types.length", 10},
                             {"types[0].full", 1},
                             {"types[1].sliding.window", 1},
                             {"types[2]", 3},
                             {"types.has[3]", 1},
                             {"types[3]", -1},
                             {"types.has[-1]", 1},
                             {"types[4]", 1},
                             {"text.experts.length", 2},
                             {"text.experts[0]", 2},
                             {"text.experts[1]", 2},
                             {"text.experts.has[2]", 1},
                             {"text.kind.moe", 1},
                             {"no.length", 0}};
  CHECK(read_config(folder / "config.json").value() == expected);
}

TEST_CASE("a long list of a configuration does not displace its numbers") {
  const scratch_folder folder;
  std::string list = "0";
  for (int i = 0; i < 100'000; ++i) list += ",0";
  write_text(folder / "config.json", R"({"a": [)" + list + R"(], "z": 5})");
  const named_sizes sizes = read_config(folder / "config.json").value();
  CHECK(sizes.find("z")->second == 5);
  CHECK(sizes.find("a.length")->second == 100'001);
  CHECK(sizes.size() <= 65'536);
}

TEST_CASE("conditions use lists of layers of the configuration") {
  const scratch_folder folder;
  tensors all{{"l.0.mlp", counted({1})}, {"l.1.moe", counted({2})}};
  small_tensors::write(folder / "a.safetensors", all);
  write_text(folder / "config.json", R"({"layers": 2, "mlp_only_layers": [0], "layer_types": ["dense", "sparse"]})");
  const model_sizes sizes = read_model_sizes(folder.path).value();
  for (const char* const text : {"mlp_only_layers.has[layer] ?? 0", "layer_types[layer].dense ?? 0"}) {
    const std::string condition = text;
    const std::vector<mapping_rules> mappings{
        parse_mapping(
            "left = 'a'\nright = 'b'\n[captures]\nlayer = 'layers'\n[[rule]]\nleft = 'l.{layer}.mlp'\nright = "
            "'r.{layer}.mlp'\nif = '" +
            condition + "'\n[[rule]]\nleft = 'l.{layer}.moe'\nright = 'r.{layer}.moe'\nif = 'not (" + condition +
            ")'\n")
            .value()};
    const auto made = map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), mappings, sizes).value();
    CHECK(small_tensors::read_all(*made) == tensors{{"r.0.mlp", counted({1})}, {"r.1.moe", counted({2})}});
  }
}

TEST_CASE("a mapping refuses a model by its configuration, in both directions") {
  const scratch_folder folder;
  tensors of_left{{"x", counted({2})}}, of_right{{"y", counted({2})}};
  small_tensors::write(folder / "x.safetensors", of_left);
  small_tensors::write(folder / "y.safetensors", of_right);
  const mapping_rules there =
      parse_mapping(
          "left = 'a'\nright = 'b'\n[rename]\n'x' = 'y'\n[[refuse]]\nif = 'part.fraction ?? 0'\n"
          "reason = 'it rotates a part of a head'\n",
          "own.toml")
          .value();
  const auto shown = [&](const mapping_rules& mapping, const char* file, const model_sizes& sizes) {
    return map_checkpoint(open_checkpoint(folder / file).value(), std::vector<mapping_rules>{mapping}, sizes);
  };
  for (const bool is_inverse : {false, true}) {
    const mapping_rules mapping = is_inverse ? there.inverse() : there;
    const char* const file = is_inverse ? "y.safetensors" : "x.safetensors";
    const auto refused = shown(mapping, file, {{{"part.fraction", 1}}, {}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::unsupported);
    CHECK(refused.error().file == "own.toml");
    CHECK(says(refused.error().message, "it rotates a part of a head (line 5)"));
    CHECK(says(refused.error().expected, "part.fraction ?? 0"));
    const tensors& expected = is_inverse ? of_left : of_right;
    const auto other = shown(mapping, file, {{{"part", 1}}, {}});
    REQUIRE(other);
    CHECK(small_tensors::read_all(**other) == expected);
    // The user's value replaces that of the configuration.
    const auto told = shown(mapping, file, {{{"part.fraction", 1}}, {{"part.fraction", 0}}});
    REQUIRE(told);
    CHECK(small_tensors::read_all(**told) == expected);
  }
}

TEST_CASE("each mapping is applied to the tensors that the one before makes") {
  const scratch_folder folder;
  tensors all{{"a", counted({2, 3}, 1)}};
  small_tensors::write(folder / "a.safetensors", all);
  const std::vector<mapping_rules> mappings{
      parse_mapping("left = 'x'\nright = 'y'\n[rename]\n'a' = 'b'\n").value(),
      parse_mapping("left = 'y'\nright = 'z'\n[[rule]]\nleft = 'b'\nright = 'c'\nindex = 'w: r c -> v: c r'\n")
          .value()};
  const auto made = map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), mappings, {}).value();
  const auto read = small_tensors::read_all(*made);
  REQUIRE(read.size() == 1);
  CHECK(read.at("c").shape == extents{3, 2});
  CHECK(read.at("c").values == std::vector<float>{1, 4, 2, 5, 3, 6});

  const auto same = map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), {}, {}).value();
  CHECK(small_tensors::read_all(*same) == all);
  const std::vector<mapping_rules> swapped{mappings[1], mappings[0]};
  const auto refused = map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), swapped, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::missing_key);
  CHECK(refused.error().key == "b");
}

TEST_CASE("a given size that no mapping uses is refused with the nearest name") {
  const std::vector<mapping_rules> mappings{
      parse_mapping("left = 'x'\nright = 'y'\n[sizes]\nh = 'hidden_size'\n[captures]\nlayer = 'num_layers'\n"
                    "[[rule]]\nleft = 'a.{layer - first}'\nright = 'b.{layer}'\nindex = 'w: h (n 1) -> v: [w:(h n)]'\n"
                    "if = 'has_a'\n")
          .value(),
      parse_mapping("left = 'y'\nright = 'z'\n[[ignore]]\nside = 'right'\nname = 'c.{expert}'\nreason = 'r'\n"
                    "if = 'experts'\n[[tie]]\nside = 'left'\nname = 'd.{tied}'\nsame_as = 'e.{partner}'\n"
                    "if = 'ties'\n")
          .value()};
  for (const char* const used : {"h", "hidden_size", "layer", "num_layers", "first", "n", "has_a", "expert", "experts",
                                 "tied", "partner", "ties"}) {
    INFO(used);
    CHECK(check_given_sizes(mappings, {{}, {{used, 1}}}));
  }
  const std::vector<mapping_rules> with_list{
      parse_mapping("left = 'x'\nright = 'y'\n[sizes]\nn = 'list[2].text ?? 0'\n").value()};
  CHECK(check_given_sizes(with_list, {{}, {{"list[2].text", 1}}}));
  CHECK_FALSE(check_given_sizes(with_list, {{}, {{"list[2].other", 1}}}));
  CHECK(check_given_sizes(mappings, {{{"unused", 1}}, {}}));  // a configuration has many other numbers
  const auto refused = check_given_sizes(mappings, {{}, {{"1", 1}, {"n", 1}, {"num_layer", 2}}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().problem_count() == 2);
  const std::vector<error> problems = refused.error().problems();
  CHECK(problems[0].found == "1=1");
  CHECK(says(problems[0].hint, "the mapping uses expert, experts, first, h, has_a, hidden_size, layer"));
  CHECK(problems[1].found == "num_layer=2");
  CHECK(problems[1].hint == "did you mean num_layers?");
}

TEST_CASE("a mapped checkpoint is not made with a size that is not used") {
  const scratch_folder folder;
  tensors all{{"a", counted({2})}};
  small_tensors::write(folder / "a.safetensors", all);
  const std::vector<mapping_rules> mappings{parse_mapping("left = 'x'\nright = 'y'\n[rename]\n'a' = 'b'\n").value()};
  const auto refused =
      map_checkpoint(open_checkpoint(folder / "a.safetensors").value(), mappings, {{}, {{"layers", 2}}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().found == "layers=2");
}
