// SPDX-License-Identifier: Apache-2.0
// Tests the limits on the cost of reading, and the global names that pickles hold. tests/oracle/hostile.py and
// globals.py run the command line on whole files.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.pickle;
import shardmesh.safetensors;
import shardmesh.storage;

using namespace shardmesh;
using namespace std::string_literals;

namespace {

// "name" for harmless names and "!name" for others, in order.
std::vector<std::string> names_of(std::string_view pickle) {
  std::vector<std::string> names;
  for (const pickle::used_name& name : pickle::names_in(std::as_bytes(std::span(pickle))).names)
    names.push_back((name.harmless ? "" : "!") + name.text);
  return names;
}

}  // namespace

TEST_CASE("a budget grows with what was read, and keeps the first refusal with its key and file") {
  read_budget budget({.built_bytes = 100, .built_per_byte = 2});
  REQUIRE(budget.build(100));
  budget.add_description(10);
  CHECK(budget.left_to_build() == 20);
  REQUIRE(budget.build(20));
  const auto refused = budget.build(1);
  REQUIRE(!refused);
  CHECK(is_beyond_limit(refused.error()));
  CHECK(refused.error().expected == "at most 120 bytes");
  CHECK(budget.left_to_build() == 0);
  const error first = budget.keep(error(refused.error()).with_key("a").with_file("f"));
  const error second = budget.keep(error(refused.error()).with_key("b").with_file("f"));
  CHECK(second == first);
  CHECK(second.key == "a");
  CHECK(budget.refusal().value() == first);
  const error other = fail(errc::bad_format, "something else");
  CHECK(budget.keep(other) == other);
}

TEST_CASE("a stream that is opened again is counted once") {
  read_budget budget({.decoded_bytes = 1000, .decoded_per_byte = 16});
  REQUIRE(budget.decode("a", 10, 1160));
  REQUIRE(budget.decode("a", 10, 1160));
  CHECK(budget.left_to_decode("b", 1) == 16);
  CHECK(budget.left_to_decode("a", 1) > 1160);
  const auto refused = budget.decode("b", 1, 17);
  REQUIRE(!refused);
  CHECK(refused.error().expected == "at most 1176 bytes");
}

TEST_CASE("what is stored pays for what repeats it") {
  read_budget budget({.expanded_bytes = 1000, .expanded_per_byte = 16});
  REQUIRE(budget.expand(1000 + 160, 10));
  CHECK(is_beyond_limit(budget.expand(1, 0).error()));
}

TEST_CASE("limits are raised together, and saturate") {
  const read_limits limits = read_limits{}.times(3);
  CHECK(limits.description_bytes == std::int64_t{3} << 30);
  CHECK(limits.decoded_per_byte == 48);
  CHECK(read_limits{}.times(0).built_bytes == read_limits{}.built_bytes);
  CHECK(read_limits{}.times(std::int64_t{1} << 40).description_bytes == INT64_MAX);
}

TEST_CASE("JSON is as deep as its open brackets, whatever its strings hold") {
  CHECK(check_json_depth(R"(["[[[[", {"a\"[[": [1]}])", 3));
  const auto refused = check_json_depth(std::string(2000, '['));
  REQUIRE(!refused);
  CHECK(refused.error().expected == "at most 1024 levels");
  CHECK(refused.error().found == "level 1025 at byte 1024");
  CHECK(check_json_depth(std::string(1024, '[')));
}

TEST_CASE("objects.json that is nested 300,000 deep is refused, also with a checksum that fits") {
  output_object deep;
  deep.key = "x";
  deep.json = [] {
    return result<std::string>(R"({"kind":"list","type":"builtins.list","value":)" + std::string(300'000, '[') +
                               std::string(300'000, ']') + "}");
  };
  const std::string text = safetensors::format_objects({&deep, 1}, {}).value();
  const auto parsed = safetensors::parse_objects(text);
  REQUIRE(!parsed);
  CHECK(parsed.error().code == errc::bad_format);
  CHECK(parsed.error().message.find("nested deeper than 2000 levels") != std::string::npos);
}

TEST_CASE("a pickle's names are those that Python would look up, wherever they stand") {
  CHECK(names_of("\x80\2"
                 "ctorch._utils\n_rebuild_tensor_v2\n.") == std::vector{"torch._utils._rebuild_tensor_v2"s});
  CHECK(names_of("c__builtin__\nset\nccollections\nOrderedDict\n0.") ==
        std::vector{"builtins.set"s, "collections.OrderedDict"s});
  CHECK(names_of("cposix\nsystem\n(Vid\ntR0N.") == std::vector{"!posix.system"s});
  CHECK(names_of("cposix\nsystem\n\xff") == std::vector{"!posix.system"s, "!<unreadable from byte 14>"s});
  CHECK(names_of("N.cposix\nsystem\n.") == std::vector{"!<another pickle after the end>"s, "!posix.system"s});
  CHECK(names_of("N.\1") == std::vector{"!<bytes after the end>"s});
  CHECK(names_of("K\1K\2\x93.") == std::vector{"!<a name that is not text>"s});
  CHECK(names_of("\x82\7.") == std::vector{"!<extension 7>"s});
}

TEST_CASE("a member of the memory format enum is harmless, another attribute of it is not") {
  const std::string type = "ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n";
  const std::string name = "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING";
  CHECK(names_of("cbuiltins\ngetattr\n(" + type + "VTORCH_CONTIGUOUS_FORMAT\ntR.") ==
        std::vector{"builtins.getattr"s, name});
  CHECK(names_of("cbuiltins\ngetattr\n(" + type + "V__init__\ntR.") ==
        std::vector{"!builtins.getattr"s, name, "!<call of builtins.getattr(" + name + ", '__init__')>"});
}

TEST_CASE("names are harmless, unknown or dangerous, and what leads to a dangerous one is, too") {
  const auto risk = [](std::string_view pickle) {
    std::string found;
    for (const pickle::used_name& name : pickle::names_in(std::as_bytes(std::span(pickle))).names)
      found += name.dangerous ? 'D' : name.harmless ? 'h' : 'u';
    return found;
  };
  CHECK(risk("ccollections\nOrderedDict\n.") == "h");
  CHECK(risk("cmine\nNet\n.") == "u");
  CHECK(risk("cos\nsystem\n.") == "D");
  CHECK(risk("c__builtin__\neval\n.") == "D");
  CHECK(risk("\x80\4Vmine\nVNet.Inner\n\x93.") == "u");
  CHECK(risk("\x80\4Vmine\nVos.system\n\x93.") == "D");
  CHECK(risk("\x80\4Vmine\nVNet.__globals__\n\x93.") == "D");
  CHECK(risk("\x80\4Vcollections\nVOrderedDict.fromkeys\n\x93.") == "D");
  CHECK(risk("cosmosis\nsystem\n.") == "u");
  CHECK(risk("cos.path\njoin\n.") == "D");
  CHECK(risk("\x82\7.") == "u");
  CHECK(risk("K\1K\2\x93.") == "D");
  // Enum members, a result of getattr that is called, and a getattr that is never called.
  CHECK(risk("cbuiltins\ngetattr\n(cmine\nColor\nVRED\ntR.") == "uuu");
  CHECK(risk("cbuiltins\ngetattr\n(cmine\nColor\nV_x\ntR.") == "DuD");
  CHECK(risk("cbuiltins\ngetattr\n(cmine\nOuter\nVInner\ntR(tR.") == "uuuu");
  CHECK(risk("cbuiltins\ngetattr\n(ccollections\nOrderedDict\nVInner\ntR(tR.") == "uhuu");
  CHECK(risk("cbuiltins\ngetattr\n(ccollections\nOrderedDict\nVfromkeys\ntR(tR.") == "DhDD");
  CHECK(risk("cbuiltins\ngetattr\n(cmine\nOuter\nVrun\ntR(tR.") == "DuuD");
  CHECK(risk("cbuiltins\ngetattr\n.") == "D");
  CHECK(pickle::is_dangerous_global("torch.serialization", "load"));
  CHECK_FALSE(pickle::is_dangerous_global("torch.serialization", "_get_layout"));
}

TEST_CASE("what only Python forgives does not end the search") {
  for (const std::string& before : {"ccollections\nOrderedDict\n]R0"s, "cargparse\nNamespace\n)R}b}b0"s, "I1_0\n0"s,
                                    "L0x1\n0"s, "F1_0\n0"s, "\x80\5C\1x\x98"s + "0", "Np1\n0"s, "S'\\x'\n0"s}) {
    INFO(before);
    const auto names = names_of(before + "cposix\nsystem\n.");
    REQUIRE(!names.empty());
    CHECK(names.back() == "!posix.system");
  }
}

TEST_CASE("an index of the memo that only Python reads makes later names unknown") {
  const auto names = names_of("\x80\4Vtorch\np1\n0Vfloat32\np2\n0Vos\np 1\n0g1\ng2\n\x93.");
  CHECK(names == std::vector{"!<a name that is not text>"s});
}

TEST_CASE("a pickle that is cut says so, one that is malformed does not") {
  const std::string cut = "\x80\2]q", malformed = "\x80\2\xff";
  CHECK(pickle::graph::parse(std::as_bytes(std::span(cut))).error().found == pickle::cut_short);
  CHECK(pickle::graph::parse(std::as_bytes(std::span(malformed))).error().found.empty());
}
