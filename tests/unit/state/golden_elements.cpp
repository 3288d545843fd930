// SPDX-License-Identifier: Apache-2.0
// Setting and finding in state dicts against PyTorch's set_element and get_element (seeds/traverse.json). Every case is
// visited; where the answers differ, a rule says why ours is right.
#include <array_tensor.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
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

TEST_CASE("set gives what PyTorch's set_element gives, and more where a place can be made") {
  std::size_t visited = 0, better = 0;
  const json& file = golden::file("seeds/traverse.json");
  for (const json& c : file.at("set_element")) {
    INFO(c.dump());
    ++visited;
    dict d = reader{}.read(c.at("root")).value();
    const dict before = d;
    const path where = path_of(c.at("path"));
    const auto set = d.set(where, reader{}.leaf(c.at("value")).value());
    if (c.at("exception").is_null()) {
      REQUIRE(set);
      CHECK(dict_json(d) == without_values(c.at("result")));
      continue;
    }
    // PyTorch raises. Ours is better by rule where the place can be made: an index is a key like any in a mapping, and
    // an element of a tuple can be exchanged. Otherwise nothing has changed.
    const json* parent = &c.at("root");
    for (std::size_t i = 0; i + 1 < where.size() && parent; ++i) parent = child_of(*parent, c.at("path")[i]);
    const bool index_in_mapping = parent && mapping_of(*parent) && !where.empty() && where.back().is_index();
    const bool element_of_tuple = parent && tagged(*parent, "$tuple") && child_of(*parent, c.at("path").back());
    CHECK(set.has_value() == (index_in_mapping || element_of_tuple));
    if (!set) {
      CHECK(d == before);
      CHECK((set.cause().code == errc::invalid_argument || set.cause().code == errc::out_of_bounds));
      continue;
    }
    ++better;
    CHECK(*d.find(where) == reader{}.leaf(c.at("value")).value());
    CHECK(d.size() == before.size() + (index_in_mapping ? 1 : 0));
  }
  CHECK(visited == 48);
  CHECK(better == 4);
}

TEST_CASE("find gives what PyTorch's get_element gives, and by typed keys") {
  const json& file = golden::file("seeds/traverse.json");
  const json& root = file.at("get_element_root").at("$dict").is_array() ? file.at("get_element_root") : json();
  const dict d = reader{}.read(root).value();
  std::size_t visited = 0;
  for (const json& c : file.at("get_element")) {
    INFO(c.dump());
    ++visited;
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
    if (there) CHECK(dict_json(d.subtree(where).value()) == without_values(*there));
    // PyTorch agrees, but that it raises one past the end of a list and never looks into tuples or for integer keys.
    const bool pytorch_found = c.at("exception").is_null() && c.at("result") != c.at("default");
    if (pytorch_found) {
      REQUIRE(there);
      CHECK(without_values(c.at("result")) == without_values(*there));
    } else {
      CHECK((there == nullptr || through_tuple || index_in_mapping));
    }
  }
  CHECK(visited == 31);
}
