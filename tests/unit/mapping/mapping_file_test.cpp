// SPDX-License-Identifier: Apache-2.0
// Tests the TOML form of mappings and the errors of wrong ones, which name a line and a column; the sizes of a mapping;
// and the mappings that ship with the library.
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.mapping;

using namespace shardmesh;

namespace {

std::string error_of(std::string_view text) {
  const auto parsed = parse_mapping(text, "mine.toml");
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().file == "mine.toml");
  return to_string(parsed.error());
}

}  // namespace

TEST_CASE("a mapping file is read") {
  const auto mapping = parse_mapping(R"toml(
left = "a"
right = "b"
[sizes]
h = "hidden"
d = "h / 4"
one = 1
[captures]
layer = "layers"
[rename]
"x.{layer}" = "y.{layer}"
[[rule]]
name = "fuse"
left.q = "q"
left.k = "k"
right.qk = "qk"
index = "q: h, k: h -> qk: [q:h | k:h]"
values = ["x + 1", "exp(x)"]
if = "layers > 1"
optional = true
[[ignore]]
side = "right"
name = "freq"
reason = "computed"
[[tie]]
side = "left"
name = "head"
same_as = "x.0"
[[refuse]]
if = "odd ?? 0"
reason = "it is odd"
)toml")
                           .value();
  CHECK(mapping.left == "a");
  CHECK(mapping.sizes.size() == 3);
  CHECK(mapping.sizes[0].name == "h");  // in the order of the file, not of the names
  REQUIRE(mapping.rules.size() == 2);
  CHECK(mapping.rules[0].index.is_rename());
  CHECK(mapping.rules[1].left[1].name.text() == "k");
  CHECK(mapping.rules[1].is_optional);
  CHECK(mapping.rules[1].condition->text() == "layers > 1");
  CHECK_FALSE(mapping.ignored[0].is_left);
  REQUIRE(mapping.refused.size() == 1);
  CHECK(mapping.refused[0].reason == "it is odd");
  CHECK(mapping.refused[0].condition.text() == "odd ?? 0");
  CHECK(mapping.refused[0].line == 29);
  const mapping_rules back = mapping.inverse();
  CHECK(back.left == "b");
  CHECK(back.rules[1].left[0].name.text() == "qk");
  CHECK(to_string(back.rules[1].values[0]) == "log(x)");
  CHECK(to_string(back.rules[1].values[1]) == "x - 1");
  CHECK(back.ignored[0].is_left);
  CHECK(back.refused.size() == 1);
}

TEST_CASE("strings and comments of a mapping file have any characters") {
  const auto mapping =
      parse_mapping("\xEF\xBB\xBFleft = 'gr\xC3\xB6\xC3\x9F'  # \xE2\x82\xAC\nright = \"\xE2\x96\x81\"").value();
  CHECK(mapping.left == "gr\xC3\xB6\xC3\x9F");
}

TEST_CASE("wrong mapping files name the line and the column") {
  const std::vector<std::pair<std::string_view, std::string_view>> cases{
      {"left = 'a'", "'right' is missing"},
      {"left = 'a'\nright = 3", "line 2, column 9"},
      {"left = 'a'\nright = 'b'\nrule = 4", "[[rule]]"},
      {"left = 'a'\nright = 'b'\nrules = []", "'rules' is unknown"},
      {"left = 'a'\nright = 'b'\n[sizes]\nh = '1 +'", "line 4"},
      {"left = 'a'\nright = 'b'\n[sizes]\nh = 1.5", "must be a string"},
      {"left = 'a'\nright = 'b'\n[rename]\n'x{' = 'y'", "without its partner"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft = 'x'", "'right' is missing"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft = 'x'\nright = 'y'\nindex = 'a: i ~ j'", "column 6"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft.q = 'x'\nright = 'y'", "needs the key 'index'"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft.p = 'x'\nright = 'y'\nindex = 'q: i -> y: i'", "'q'"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft = 'x'\nright = 'y'\nvalues = ['sqrt(x)']", "sqrt(x)"},
      {"left = 'a'\nright = 'b'\n[[rule]]\nleft = 'x'\nright = 'y'\nvalues = ['x * 0']", "x * 0"},
      {"left = 'a'\nright = 'b'\n[[ignore]]\nside = 'middle'\nname = 'x'\nreason = 'y'", "left or right"},
      {"left = 'a'\nright = 'b'\n[[refuse]]\nreason = 'x'", "line 3, column 1: the key 'if' is missing"},
      {"left = 'a'\nright = 'b'\n[[refuse]]\nif = '1'", "'reason' is missing"},
      {"left = 'a'\nright = 'b'\n[[refuse]]\nif = '1'\nreason = 'x'\nside = 'left'", "'side' is unknown"},
      {"left = 'a\nright = 'b'", "line 1"},
      {"left = 'a'\nleft = 'b'", "line 2"},
      {"left = 'a'\nright = 'b'\n[[\x17ule]]", "line 3"},
      {"left = 'a'\nright = 'b' \xC3\xA9", "line 2: a character that is not ASCII"},
      {"left = \"\"\"a\\\xC3\xA9\"\"\"\nright = 'b'", "not ASCII"},
  };
  for (const auto& [text, expected] : cases) {
    INFO(text);
    const std::string found = error_of(text);
    INFO(found);
    CHECK(found.find(expected) != std::string::npos);
  }
}

TEST_CASE("sizes that the user gives replace numbers of the configuration and of the mapping") {
  const mapping_rules mapping =
      parse_mapping("left = 'a'\nright = 'b'\n[sizes]\nd = 'hidden / heads'\n[captures]\nlayer = 'layers'\n").value();
  const model_sizes sizes{{{"hidden", 8}, {"heads", 2}}, {{"heads", 4}, {"layers", 3}}};
  std::map<std::string, error, std::less<>> missing;
  const named_sizes all = sizes.resolve(mapping, missing).value();
  CHECK(all == named_sizes{{"hidden", 8}, {"heads", 4}, {"layers", 3}, {"d", 2}, {"layer", 3}});
  CHECK(missing.empty());
  const model_sizes direct{{{"hidden", 8}, {"heads", 2}}, {{"d", 16}}};
  const named_sizes some = direct.resolve(mapping, missing).value();
  CHECK(some == named_sizes{{"hidden", 8}, {"heads", 2}, {"d", 16}});
  CHECK(missing.contains("layer"));
}

TEST_CASE("a key has at most 16 dots, which strings and comments do not count") {
  std::string deep = "a";
  for (int i = 0; i < 17; ++i) deep += ".a";
  const std::string names = "left = 'a'\nright = 'b'\n";
  CHECK(error_of(names + deep + " = 1").find("line 3: a key has too many parts") != std::string::npos);
  CHECK(error_of(names + "[" + deep + "]").find("too many parts") != std::string::npos);
  CHECK(error_of(names + "[sizes]\nn = '''\n'''\n" + deep + " = 1").find("line 6") != std::string::npos);
  CHECK(parse_mapping(names + "# " + deep + "\n[rename]\n'" + deep + "' = \"" + deep + "\"\n"));
}

TEST_CASE("every shipped mapping is found in both directions") {
  const auto shipped = shipped_conventions();
  REQUIRE_FALSE(shipped.empty());
  for (const shipped_convention& one : shipped) {
    INFO(one.left << ":" << one.right);
    const auto there = find_mappings(one.left + ":" + one.right);
    REQUIRE(there);
    REQUIRE(there->size() == 1);
    CHECK(there->front().left == one.left);
    CHECK(there->front().right == one.right);
    const auto back = find_mappings(one.right + ":" + one.left).value();
    CHECK(back.front().left == one.right);
  }
}

TEST_CASE("conventions without a mapping of their own are related by a chain") {
  const auto chain = find_mappings("meta.llama:megatron.gpt").value();
  REQUIRE(chain.size() == 2);
  CHECK(chain[0].left == "meta.llama");
  CHECK(chain[0].right == chain[1].left);
  CHECK(chain[1].right == "megatron.gpt");
  for (const std::string_view wrong :
       {"hf.llama", "hf.llama:", ":meta.llama", "hf.llama:nonsense", "hf.llama:hf.llama"}) {
    INFO(wrong);
    const auto found = find_mappings(wrong);
    REQUIRE_FALSE(found);
    CHECK(found.error().code == errc::invalid_argument);
  }
}
