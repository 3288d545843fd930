// SPDX-License-Identifier: Apache-2.0
// Tests the checks of objects.json on reading: kinds, types, tags, and numbers. Each error names the key.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.digest;
import shardmesh.safetensors;

using namespace shardmesh;

namespace {

output_object object(std::string key, std::string json) {
  output_object made;
  made.key = std::move(key);
  made.json = [json = std::move(json)]() -> result<std::string> { return json; };
  return made;
}

// Reads a document that holds {"kind":..,"type":..,"value":..} as the object "k.v", with a correct digest.
result<std::vector<safetensors::stored_object>> read(const std::string& members) {
  const std::vector objects{object("k.v", members)};
  auto found = safetensors::parse_objects(*safetensors::format_objects(objects, {}));
  if (!found) return std::move(found).error();
  CHECK(found->tensor_paths.empty());
  return std::move(found->objects);
}

result<std::vector<safetensors::stored_object>> read(std::string_view kind, std::string_view type,
                                                     std::string_view value) {
  return read(std::string("{\"kind\":\"") + std::string(kind) + "\",\"type\":\"" + std::string(type) +
              "\",\"value\":" + std::string(value) + "}");
}

// The document with its correct digest.
std::string with_digest(std::string text) {
  const std::size_t digits = text.find("\"xxh3\":\"") + 8;
  text.replace(digits, 32, std::string(32, '0'));
  return text.replace(digits, 32, to_hex(xxh3(std::as_bytes(std::span(text)))));
}

// The type that belongs to a kind, so that only the value can be wrong.
std::string type_for(std::string_view kind) {
  if (kind == "none") return "builtins.NoneType";
  if (kind == "size") return "torch.Size";
  if (kind == "dtype" || kind == "device") return "torch." + std::string(kind);
  return "builtins." + std::string(kind);
}

}  // namespace

TEST_CASE("what the writer of objects.json prints is read back as it was") {
  const std::pair<std::string_view, std::pair<std::string_view, std::string_view>> values[] = {
      {"none", {"builtins.NoneType", "null"}},
      {"bool", {"builtins.bool", "true"}},
      {"int", {"builtins.int", "-3"}},
      {"int", {"builtins.int", R"({"$int":"123456789012345678901234567890"})"}},
      {"float", {"builtins.float", R"({"$float":"0x1.0624dd2f1a9fcp-10"})"}},
      {"float", {"builtins.float", R"({"$float":"nan"})"}},
      {"complex", {"builtins.complex", R"({"$complex":["0x1.0000000000000p+0","-inf"]})"}},
      {"str", {"builtins.str", R"("a \"quoted\" name")"}},
      {"str", {"builtins.str", R"({"$str":"edb080"})"}},
      {"bytes", {"builtins.bytes", R"({"$bytes":"00ff"})"}},
      {"bytearray", {"builtins.bytearray", R"({"$bytearray":""})"}},
      {"list", {"builtins.list", R"([1,[2,{"$ref":2}],{"$ref":1}])"}},
      {"tuple", {"builtins.tuple", R"({"$tuple":[1,{"$tuple":[]}]})"}},
      {"dict", {"builtins.dict", R"({"$dict":[["a",1],[2,{"$dict":[]}]]})"}},
      {"dict", {"builtins.dict", R"({"a":{"b":[1]},"c":{}})"}},
      {"odict", {"collections.OrderedDict", R"({"$odict":[["a",{"$float":"0x0.0p+0"}]]})"}},
      {"set", {"builtins.set", R"({"$set":[1,"a"]})"}},
      {"frozenset", {"builtins.frozenset", R"({"$frozenset":[]})"}},
      {"size", {"torch.Size", R"({"$size":[2,3]})"}},
      {"dtype", {"torch.dtype", R"({"$dtype":"bfloat16"})"}},
      {"device", {"torch.device", R"({"$device":"cuda:0"})"}},
      {"global", {"builtins.type", R"({"$other":"builtins.type","name":"torch.nn.functional.relu"})"}},
      {"opaque", {"builtins.range", R"({"$other":"builtins.range","range":[0,3,1]})"}},
      {"opaque", {"numpy.ndarray", R"({"$other":"numpy.ndarray","dtype":"<f4","shape":[1],"data":"0000803f"})"}},
      {"opaque-tensor", {"torch.Tensor", "null"}},
      {"tensor",
       {"torch.Tensor", R"({"$tensor":{"dtype":"float32","shape":[2,0],"sha256":"e3b0c44298fc1c149afbf4c8996fb924)"
                        R"(27ae41e4649b934ca495991b7852b855"}})"}},
  };
  for (const auto& [kind, rest] : values) {
    const auto& [type, value] = rest;
    INFO(value);
    const auto found = read(kind, type, value);
    REQUIRE(found);
    REQUIRE(found->size() == 1);
    CHECK((*found)[0].key == "k.v");
    CHECK((*found)[0].value.kind == kind);
    CHECK((*found)[0].value.type == type);
    CHECK((*found)[0].value.json == value);
  }
}

TEST_CASE("paths keep names, indices and integer keys apart") {
  output_object one = object("a.0.0.0", R"({"kind":"int","type":"builtins.int","value":1})");
  one.where = {"a", 0, path_key::of_integer(0), "0", path_key::of_integer(-7)};
  const auto text = safetensors::format_objects(std::vector{one}, {});
  REQUIRE(text);
  const std::string_view spelled = R"("path":["a",0,{"$int":0},"0",{"$int":-7}])";
  REQUIRE(text->find(spelled) != std::string::npos);
  const auto found = safetensors::parse_objects(*text);
  REQUIRE(found);
  CHECK(found->objects.at(0).where == one.where);
  for (const std::string_view bad :
       {R"("path":[{"$int":"0"}])", R"("path":[{"$int":[0]}])", R"("path":[{}])", R"("path":[{"$int":0,"$int":1}])",
        R"("path":[{"int":0}])", R"("path":[{"$int":{}}])", R"("path":[{"$int":0.5}])", R"("path":[{"$int":null}])",
        R"("path":[[0]])"}) {
    INFO(bad);
    std::string changed = *text;
    changed.replace(changed.find(spelled), spelled.size(), bad);
    const auto refused = safetensors::parse_objects(with_digest(changed));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::bad_format);
    CHECK(refused.error().key == "a.0.0.0");
  }
}

TEST_CASE("paths hold keys that only Python has as JSON, and those that JSON does not hold as their text") {
  const auto pickled = [](std::string_view text) { return std::string("\x80\2") + std::string(text) + "."; };
  output_object one = object("a.None.Color", R"({"kind":"int","type":"builtins.int","value":1})");
  one.where = {"a", path_key::of_python("None", pickled("N")),
               path_key::of_python("Color", pickled("cm\nColor\nK\1\x85R"))};
  const auto text = safetensors::format_objects(std::vector{one}, {});
  REQUIRE(text);
  const std::string_view spelled = R"("path":["a",{"$key":"null","text":"None"},"Color"])";
  REQUIRE(text->find(spelled) != std::string::npos);
  const auto found = safetensors::parse_objects(*text);
  REQUIRE(found);
  CHECK(found->objects.at(0).where == path{"a", path_key::of_python("None", pickled("N")), "Color"});
  for (const std::string_view bad :
       {R"("path":[{"$key":"null"}])", R"("path":[{"$key":null,"text":"None"}])",
        R"("path":[{"text":"None","$key":"null"}])", R"("path":[{"$key":"nul","text":"None"}])",
        R"("path":[{"$key":"{\"$other\":\"m.C\"}","text":"C"}])", R"("path":[{"$key":"null","text":"None","more":1}])",
        R"("path":[{"$key":"null","text":["None"]}])"}) {
    INFO(bad);
    std::string changed = *text;
    changed.replace(changed.find(spelled), spelled.size(), bad);
    const auto refused = safetensors::parse_objects(with_digest(changed));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::bad_format);
    CHECK(refused.error().key == "a.None.Color");
  }
}

TEST_CASE("a value that the writer of objects.json would not print is an error that names its key") {
  const std::pair<std::string_view, std::string_view> values[] = {
      {"float", "1.5"},
      {"int", "99999999999999999999"},
      {"int", R"({"$int":"12x"})"},
      {"int", R"({"$int":12})"},
      {"int", "\"12\""},
      {"float", R"({"$float":"1.5"})"},
      {"float", R"({"$float":"0x1p"})"},
      {"float", R"({"$float":"0x1p+1 "})"},
      {"complex", R"({"$complex":["inf"]})"},
      {"complex", R"({"$complex":["inf","inf","inf"]})"},
      {"complex", R"({"$complex":[1,2]})"},
      {"bytes", R"({"$bytes":"0"})"},
      {"bytes", R"({"$bytes":"zz"})"},
      {"str", R"({"$str":"0g"})"},
      {"dtype", R"({"$dtype":"load"})"},
      {"device", R"({"$device":"cuda:x"})"},
      {"size", R"({"$size":[-1]})"},
      {"size", R"({"$size":["a"]})"},
      {"size", R"({"$size":[[1]]})"},
      {"tuple", R"({"$tuple":{"a":1}})"},
      {"tuple", R"({"$tuple":1})"},
      {"dict", R"({"$dict":[["a"]]})"},
      {"dict", R"({"$dict":[["a",1,2]]})"},
      {"dict", R"({"$dict":["a",1]})"},
      {"dict", R"({"$dict":[{"a":1}]})"},
      {"dict", R"({"a":1,"a":2})"},
      {"dict", R"({"$dict":[],"b":1})"},
      {"opaque", R"({"$exec":"rm"})"},
      {"opaque", R"({"$other":""})"},
      {"opaque", R"({"$other":"a","code":"b"})"},
      {"opaque", R"({"$other":"a","range":[1,2]})"},
      {"opaque", R"({"$other":"a","data":"x"})"},
      {"opaque", R"({"$other":"a","shape":[-1]})"},
      {"list", R"([{"$ref":2}])"},
      {"list", R"([{"$ref":0}])"},
      {"list", R"({"$ref":1})"},
      {"tensor", R"({"$tensor":{"dtype":"float32","shape":[2]}})"},
      {"tensor", R"({"$tensor":{"dtype":"nothing","shape":[2],"sha256":""}})"},
      {"bool", "1"},
      {"list", R"({"$tuple":[]})"},
      {"none", "0"},
      {"thing", "null"},
  };
  for (const auto& [kind, value] : values) {
    INFO(value);
    const auto found = read(kind, type_for(kind), value);
    REQUIRE_FALSE(found);
    INFO(found.error().message);
    CHECK(found.error().message.find("the type does not match") == std::string::npos);
    CHECK(found.error().code == errc::bad_format);
    CHECK(found.error().key == "k.v");
  }
}

TEST_CASE("an entry of objects.json has a kind, a type that goes with it, a value and nothing else") {
  CHECK(read("int", "builtins.str", "1").error().found == "builtins.str");
  CHECK(read("opaque", "", R"({"$other":"a"})").error().key == "k.v");
  CHECK(read(R"({"kind":"int","type":"builtins.int"})").error().key == "k.v");
  CHECK(read(R"({"type":"builtins.int","value":1})").error().key == "k.v");
  CHECK(read(R"({"kind":"int","kind":"int","type":"builtins.int","value":1})").error().key == "k.v");
  CHECK(read(R"({"kind":"int","type":"builtins.int","value":1,"more":1})").error().key == "k.v");
  CHECK(read(R"({"kind":"int","type":"builtins.int","value":[1}})").error().code == errc::bad_format);
  std::vector<output_object> twice;
  for (int i = 0; i < 2; ++i) twice.push_back(object("a", R"({"kind":"int","type":"builtins.int","value":1})"));
  CHECK(safetensors::parse_objects(*safetensors::format_objects(twice, {})).error().code == errc::duplicate_key);
}

TEST_CASE("deep values and many entries of objects.json are read without recursion and in linear time") {
  for (const int depth : {100, 300000}) {
    const std::string open(static_cast<std::size_t>(depth), '['), close(static_cast<std::size_t>(depth), ']');
    CHECK(read("list", "builtins.list", open + close).has_value() == (depth == 100));
  }
  std::vector<output_object> many;
  for (int i = 0; i < 20000; ++i)
    many.push_back(object("key." + std::to_string(i), R"({"kind":"int","type":"builtins.int","value":1})"));
  CHECK(safetensors::parse_objects(*safetensors::format_objects(many, {}))->objects.size() == 20000);
}
