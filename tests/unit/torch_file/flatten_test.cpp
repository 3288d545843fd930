// SPDX-License-Identifier: Apache-2.0
// Tests a .pt state dict as names and tensors: PyTorch's flattening rules, and objects that share or contain
// themselves.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <checkpoint_data.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

import shardmesh.torch_file;

using namespace shardmesh;
using namespace std::string_literals;
namespace data = checkpoint_data;

namespace {

const std::filesystem::path fixtures = std::filesystem::path(SHARDMESH_TEST_DATA) / "pickle";

result<std::vector<torch_file::flat_entry>> flattened(const std::string& pickle,
                                                      const torch_file::flatten_options& options = {}) {
  std::vector<std::byte> bytes;
  for (const char c : pickle) bytes.push_back(static_cast<std::byte>(c));
  const memory_source source(bytes, "made");
  static std::vector<torch_file::item> alive;  // entries refer to their item
  alive.push_back(torch_file::item::open(source).value());
  return flatten_state_dict(alive.back(), alive.back().root(), options);
}

}  // namespace

TEST_CASE("a .pt state dict flattens to PyTorch's paths and tensors, by both rules and from both file formats") {
  const std::string file = GENERATE("state.pt", "state_legacy.pt");
  const bool old_rule = GENERATE(false, true);
  INFO(file << " " << old_rule);
  const auto bytes = data::read(fixtures / file);
  const memory_source source(bytes, file);
  const auto item = torch_file::item::open(source);
  if (!item) FAIL(to_string(item.error()));
  CHECK(item->format() == (file == "state.pt" ? torch_file::item_format::zip : torch_file::item_format::legacy_stream));
  const auto entries =
      flatten_state_dict(*item, item->root(), {.policy = old_rule ? key_policy::torch_dcp_2_3 : key_policy::torch_dcp});
  if (!entries) FAIL(to_string(entries.error()));
  const auto expected = data::read_json(fixtures / "state.json")[old_rule ? "2.3" : "2.4"];
  REQUIRE(entries->size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const torch_file::flat_entry& entry = (*entries)[i];
    INFO(entry.fqn);
    nlohmann::json path = nlohmann::json::array();
    for (const path_key& step : entry.where) {
      if (step.is_index())
        path.push_back(step.index());
      else
        path.push_back(std::string(step.name()));
    }
    CHECK(path == expected[i]["path"]);
    REQUIRE(entry.tensor.has_value() == expected[i].contains("sha256"));
    if (!entry.tensor) continue;
    const torch_file::tensor& tensor = item->tensors()[*entry.tensor];
    CHECK(std::string(name(tensor.type)) == expected[i]["dtype"].get<std::string>());
    CHECK(std::vector<std::int64_t>(tensor.sizes.begin(), tensor.sizes.end()) ==
          expected[i]["shape"].get<std::vector<std::int64_t>>());
    CHECK(sha256::hex_of(read_tensor(source, *item, *entry.tensor, 1 << 20).value()) ==
          expected[i]["sha256"].get<std::string>());
  }
  const auto by_name = [&](std::string_view fqn) {
    for (const torch_file::flat_entry& entry : *entries)
      if (entry.fqn == fqn) return entry;
    return torch_file::flat_entry{};
  };
  CHECK(classify(*item, by_name("q").value).kind == torch_file::object_kind::opaque_tensor);
  CHECK(classify(*item, by_name("sparse").value).kind == torch_file::object_kind::opaque_tensor);
  CHECK(item->tensors()[*by_name("param").tensor].python_type == "torch.nn.parameter.Parameter");
  CHECK(item->tensors()[*by_name("param").tensor].requires_grad);
  CHECK(item->tensors()[*by_name("t").tensor].storage == item->tensors()[*by_name("w").tensor].storage);
}

TEST_CASE("two paths with one dotted name are an error that names it") {
  const auto entries = flattened("(S'a.b'\nI1\nS'a'\n(S'b'\nI2\ndd.");
  REQUIRE(!entries);
  CHECK(entries.error().code == errc::duplicate_key);
  CHECK(entries.error().key == "a.b");
}

TEST_CASE("a dict inside itself is one object there") {
  // d = {"n": {"i": 1}}; d["n"]["up"] = d; d["l"] = [d, {}]
  const auto entries = flattened("}q\0(X\1\0\0\0n}(X\1\0\0\0iK\1X\2\0\0\0uph\0uX\1\0\0\0l](h\0}eu."s);
  if (!entries) FAIL(to_string(entries.error()));
  std::vector<std::string> names;
  for (const torch_file::flat_entry& entry : *entries) names.push_back(entry.fqn);
  CHECK(names == std::vector<std::string>{"n.i", "n.up", "l.0"});
}

TEST_CASE("a dict that doubles sixty times is an error and ends") {
  std::string doubling = "}q\0"s;
  for (int i = 0; i < 60; ++i) {
    const char at = static_cast<char>(i), next = static_cast<char>(i + 1);
    doubling += "(S'a'\nh"s + at + "S'b'\nh"s + at + "dq" + next;
  }
  CHECK(flattened(doubling + ".", {.max_entries = 100000}).error().code == errc::unsupported);
}

TEST_CASE("keys of a state dict are named as Python's str() names them") {
  // {(1, 'a'): 0, b'b\'\n': 1, torch.float32: 2, torch.Size([2]): 3, (): 4, None: 5, (1,): 6, 1e-07: 7}
  const std::string pickle =
      "\x80\3}((K\1X\1\0\0\0atK\0C\3b'\nK\1ctorch\nfloat32\nK\2ctorch\nSize\nK\2\x85\x85RK\3)K\4NK\5K\1\x85K\6F1e-7\nK\7u."s;
  const auto entries = flattened(pickle);
  if (!entries) FAIL(to_string(entries.error()));
  std::vector<std::string> names;
  for (const torch_file::flat_entry& entry : *entries) names.push_back(entry.fqn);
  CHECK(names == std::vector<std::string>{"(1, 'a')", "b\"b'\\n\"", "torch.float32", "torch.Size([2])", "()", "None",
                                          "(1,)", "1e-07"});
  // The paths keep the keys themselves.
  const std::vector<std::string> spelled{R"({"$tuple":[1,"a"]})",   R"({"$bytes":"62270a"})",
                                         R"({"$dtype":"float32"})", R"({"$size":[2]})",
                                         R"({"$tuple":[]})",        "null",
                                         R"({"$tuple":[1]})",       R"({"$float":"0x1.ad7f29abcaf48p-24"})"};
  for (std::size_t i = 0; i < spelled.size(); ++i) {
    INFO(spelled[i]);
    const path_key& key = (*entries)[i].where[0];
    REQUIRE(key.is_python());
    CHECK(torch_file::json_of_key(key) == spelled[i]);
    const auto again = torch_file::key_of_json(key.name(), spelled[i]);
    if (!again) FAIL(to_string(again.error()));
    CHECK(again->name() == key.name());
    CHECK(torch_file::json_of_key(*again) == spelled[i]);
  }
}

TEST_CASE("a mapping with a key that only Python can name is one object, and at the root its pickle names the key") {
  // {"cfg": {Color(1): 1, "x": 2}, Color(1): 3}
  const std::string pickle = "\x80\2}(X\3\0\0\0cfg}(cm\nColor\nK\1\x85Rq\0K\1X\1\0\0\0xK\2uh\0K\3u."s;
  const auto entries = flattened(pickle);
  if (!entries) FAIL(to_string(entries.error()));
  REQUIRE(entries->size() == 2);
  CHECK((*entries)[0].fqn == "cfg");
  CHECK((*entries)[0].value.size() == 2);
  const path_key& key = (*entries)[1].where[0];
  CHECK((*entries)[1].fqn == key.name());
  CHECK(key.name().size() == 17);
  CHECK(key.name().starts_with('#'));
  REQUIRE(key.is_python());
  CHECK(key.pickled().find("cm\nColor\n") != std::string_view::npos);
  CHECK_FALSE(torch_file::json_of_key(key));
}

TEST_CASE("the name of a key that only Python can name depends neither on its place nor on the order of a set") {
  // {frozenset([1, "a"]): 1, "x": 2}, then with both orders reversed
  const std::string set = "cbuiltins\nfrozenset\n]("s, one = "K\1"s, a = "X\1\0\0\0a"s, made = "e\x85R"s;
  const auto first = flattened("\x80\2}(" + set + one + a + made + "K\1X\1\0\0\0xK\2u."s);
  const auto second = flattened("\x80\2}(X\1\0\0\0xK\2"s + set + a + one + made + "K\1u."s);
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE((*first)[0].where[0].is_python());
  CHECK((*first)[0].fqn == (*second)[1].fqn);
  const auto again = torch_file::key_of_json("another text", R"({"$frozenset":["a",1]})");
  REQUIRE(again);
  CHECK(again->name() == (*first)[0].fqn);
}

TEST_CASE("of two keys that are pickled alike the second is named by its position") {
  // {Thing(): 1, Thing(): 2, "x": 3}
  const std::string thing = "cm\nThing\n)R"s;
  const auto entries = flattened("\x80\2}("s + thing + "K\1"s + thing + "K\2X\1\0\0\0xK\3u."s);
  if (!entries) FAIL(to_string(entries.error()));
  REQUIRE(entries->size() == 3);
  CHECK((*entries)[0].where[0].is_python());
  CHECK((*entries)[1].fqn == "#1");
  CHECK_FALSE((*entries)[1].where[0].is_python());
}

TEST_CASE("a pickled state dict is flattened by PyTorch's rules only") {
  const auto refused = flattened("}."s, {.policy = key_policy::typed});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(to_string(refused.error()).find("key_policy::torch_dcp_2_3, found key_policy::typed") != std::string::npos);
}

TEST_CASE("a list inside itself is one object beside the other entries") {
  const auto entries = flattened("}(X\1\0\0\0l]q\0h\0aX\1\0\0\0nK\1u."s);
  if (!entries) FAIL(to_string(entries.error()));
  REQUIRE(entries->size() == 2);
  CHECK((*entries)[0].fqn == "l");
  CHECK((*entries)[1].fqn == "n");
}

TEST_CASE("a shared object that doubles sixty times is an error instead of endless JSON") {
  std::string doubling = "]q\0"s;
  for (int i = 0; i < 60; ++i)
    doubling += "(h"s + static_cast<char>(i) + "h" + static_cast<char>(i) + "lq" + static_cast<char>(i + 1);
  std::vector<std::byte> bytes;
  for (const char c : doubling + ".") bytes.push_back(static_cast<std::byte>(c));
  const memory_source source(bytes, "laughs");
  const auto item = torch_file::item::open(source).value();
  CHECK(is_beyond_limit(object_json(source, item, item.root(), {.limit_bytes = 1 << 20}).error()));
}

TEST_CASE("JSON is valid for strings with lone surrogates and for lists inside themselves") {
  const std::string pickle =
      "]q\0X\3\0\0\0\xed\xa0\x80"
      "ah\0a."s;
  std::vector<std::byte> bytes;
  for (const char c : pickle) bytes.push_back(static_cast<std::byte>(c));
  const memory_source source(bytes, "odd");
  const auto item = torch_file::item::open(source).value();
  const auto printed = nlohmann::json::parse(object_json(source, item, item.root()).value());
  CHECK(printed == nlohmann::json::parse(R"([{"$str":"eda080"},{"$ref":1}])"));
  CHECK(json_quoted("a\xff\n") == R"("a\udcff\n")");
}
