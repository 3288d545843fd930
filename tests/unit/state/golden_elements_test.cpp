// SPDX-License-Identifier: Apache-2.0
// Compares setting and finding in state dicts with the results of PyTorch's set_element and get_element
// (seeds/traverse.json). The differences are in tests/data/differences/traverse.json, with rules that say where ours is
// better.
#include <array_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <differences.hpp>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>
import shardmesh.state;
import shardmesh.test.states;

using namespace shardmesh;
using namespace states;
using nlohmann::json;

TEST_CASE("set gives what PyTorch's set_element gives, and more where a place can be made", "[traverse]") {
  golden::differences differences("traverse", "set_element");
  const json& cases = golden::file("seeds/traverse.json").at("set_element");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const json& c = cases[i];
    INFO(c.dump());
    dict d = reader{}.read(c.at("root")).value();
    const dict before = d;
    const path where = path_of(c.at("path"));
    const auto set = d.set(where, reader{}.leaf(c.at("value")).value());
    differences.compare(
        std::to_string(i), {{"exception", c.at("exception")}, {"result", normal(c.at("result"))}},
        {{"exception", set ? json() : golden::refusal(set.error())["exception"]}, {"result", dict_json(d)}},
        set ? "places that can be made" : "refusals");
    // Where PyTorch raises, ours succeeds if the place can be made. In a mapping, an index is a key like any other, and
    // a tuple's element can be replaced. Otherwise nothing changes.
    const json* parent = &c.at("root");
    for (std::size_t k = 0; k + 1 < where.size() && parent; ++k) parent = child_of(*parent, c.at("path")[k]);
    const bool index_in_mapping = parent && mapping_of(*parent) && !where.empty() && where.back().is_index();
    const bool element_of_tuple = parent && tagged(*parent, "$tuple") && child_of(*parent, c.at("path").back());
    if (!c.at("exception").is_null()) CHECK(set.has_value() == (index_in_mapping || element_of_tuple));
    if (!set) CHECK(d == before);
    if (set) CHECK(*d.find(where) == reader{}.leaf(c.at("value")).value());
  }
  differences.finish();
}

TEST_CASE("find gives what PyTorch's get_element gives, and by typed keys", "[traverse]") {
  golden::differences differences("traverse", "get_element");
  const json& file = golden::file("seeds/traverse.json");
  const json& root = file.at("get_element_root");
  const dict d = reader{}.read(root).value();
  for (std::size_t i = 0; i < file.at("get_element").size(); ++i) {
    const json& c = file["get_element"][i];
    INFO(c.dump());
    const path where = path_of(c.at("path"));
    const json* there = &root;
    bool through_tuple = false, index_in_mapping = false;
    for (const json& key : c.at("path")) {
      if (!there) break;
      through_tuple |= tagged(*there, "$tuple") != nullptr;
      index_in_mapping |= mapping_of(*there) != nullptr && key.is_number_integer();
      there = child_of(*there, key);
    }
    CHECK(d.contains(where) == (there != nullptr));
    json theirs = c;
    theirs.erase("path");
    theirs["result"] = normal(theirs["result"]);
    // Both return the caller's default.
    differences.compare(std::to_string(i), theirs,
                        {{"default", "DEFAULT"},
                         {"exception", nullptr},
                         {"result", d.contains(where) ? dict_json(d.subtree(where).value()) : json("DEFAULT")}},
                        through_tuple      ? "tuples"
                        : index_in_mapping ? "integer keys"
                                           : "past the end of a list");
  }
  differences.finish();
}
