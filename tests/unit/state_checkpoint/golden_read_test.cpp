// SPDX-License-Identifier: Apache-2.0
// Tests read_state_dict on PyTorch's files: exactly the leaves of every golden DCP folder, at the paths of its planner
// data, against expected.json.
#include <catch2/catch_test_macros.hpp>
#include <checkpoint_data.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <sha256.hpp>
#include <string>
#include <vector>

import shardmesh.state_checkpoint;

using namespace shardmesh;
using nlohmann::json;

namespace {

using dict = state_dict<host_tensor>;

bool is_tagged(const json& value, const char* tag) {
  return value.is_object() && value.contains(tag);
}

// The elements of a list or tuple, or the pairs of a dict.
const json* children_of(const json& value) {
  if (value.is_array()) return &value;
  for (const char* tag : {"$tuple", "$dict"})
    if (is_tagged(value, tag)) return &value[tag];
  return nullptr;
}

bool holds_tensors(const json& value) {
  if (is_tagged(value, "$tensor")) return true;
  const json* const children = children_of(value);
  if (!children) return false;
  for (const json& child : *children)
    if (holds_tensors(is_tagged(value, "$dict") ? child[1] : child)) return true;
  return false;
}

// Whether the library can represent the value and everything in it.
bool has_form(const json& value) {
  if (is_tagged(value, "$int")) {
    const std::string digits = value["$int"];
    return digits == "-9223372036854775808" || digits.size() < 19;
  }
  if (is_tagged(value, "$float") || is_tagged(value, "$bytes")) return true;
  if (!value.is_structured()) return true;
  const json* const children = children_of(value);
  if (!children) return false;
  for (const json& child : *children)
    if (!has_form(is_tagged(value, "$dict") ? child[1] : child)) return false;
  return true;
}

std::string hex_of(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

// Compares the value at a path with PyTorch's answer; counts the leaves that it saw.
class state_check {
 public:
  explicit state_check(const dict& found) : found_(found) {}
  std::size_t leaves() const { return leaves_; }

  void tensor(const json& expected, const path& at) {
    const auto* const value = leaf(at);
    if (!value) return;
    const host_tensor* const held = value->tensor();
    REQUIRE(held);
    CHECK(name(held->type()) == expected["dtype"].get<std::string>());
    CHECK(held->sizes() == golden::to_extents(expected["shape"]));
    CHECK(test::sha256(held->bytes()) == expected["sha256"].get<std::string>());
  }

  void object(const json& expected, const std::string& type, const path& at) {
    INFO(to_string(at));
    if (is_tagged(expected, "$tensor")) return tensor(expected["$tensor"], at);
    if (!holds_tensors(expected) && !has_form(expected)) {
      const auto* const value = leaf(at);
      if (!value) return;
      REQUIRE(value->object());
      CHECK(value->object()->type_name == type);
      CHECK_FALSE(value->object()->bytes.empty());
      return;
    }
    if (const json* const children = children_of(expected)) return container(expected, *children, at);
    const auto* const value = leaf(at);
    if (value) plain(expected, *value);
  }

 private:
  void container(const json& expected, const json& children, const path& at) {
    // A container that holds tensors is split: its places are numbered, and a tuple is no longer a tuple.
    const bool is_tuple = is_tagged(expected, "$tuple") && !holds_tensors(expected);
    CHECK(found_.kind(at) == (is_tagged(expected, "$dict") ? node_kind::mapping
                              : is_tuple                   ? node_kind::tuple
                                                           : node_kind::sequence));
    for (std::size_t i = 0; i < children.size(); ++i) {
      path inner = at;
      const json* child = &children[i];
      if (is_tagged(expected, "$dict")) {
        const json& key = children[i][0];
        key.is_number() ? inner.push_back(key.get<std::int64_t>()) : inner.push_back(key.get<std::string>());
        child = &children[i][1];
      } else {
        inner.push_back(static_cast<std::int64_t>(i));
      }
      object(*child, is_tagged(*child, "$other") ? (*child)["$other"].get<std::string>() : "", inner);
    }
  }

  void plain(const json& expected, const state_value<host_tensor>& value) {
    if (expected.is_null()) {
      CHECK(value.is_none());
    } else if (expected.is_boolean()) {
      REQUIRE(value.boolean());
      CHECK(*value.boolean() == expected.get<bool>());
    } else if (expected.is_number_integer() || is_tagged(expected, "$int")) {
      REQUIRE(value.integer());
      CHECK(*value.integer() ==
            (expected.is_object() ? std::stoll(expected["$int"].get<std::string>()) : expected.get<std::int64_t>()));
    } else if (is_tagged(expected, "$float")) {
      REQUIRE(value.floating());
      const double wanted = std::strtod(expected["$float"].get<std::string>().c_str(), nullptr);
      CHECK((std::isnan(wanted)
                 ? std::isnan(*value.floating())
                 : wanted == *value.floating() && std::signbit(wanted) == std::signbit(*value.floating())));
    } else if (expected.is_string()) {
      REQUIRE(value.text());
      CHECK(*value.text() == expected.get<std::string>());
    } else {
      REQUIRE(value.bytes());
      CHECK(hex_of(*value.bytes()) == expected["$bytes"].get<std::string>());
    }
  }

  const state_value<host_tensor>* leaf(const path& at) {
    INFO(to_string(at));
    const auto* const value = found_.find(at);
    CHECK(value);
    if (value) ++leaves_;
    return value;
  }

  const dict& found_;
  std::size_t leaves_ = 0;
};

path path_of(const json& keys) {
  path made;
  for (const json& key : keys)
    key.is_string() ? made.push_back(key.get<std::string>()) : made.push_back(key.get<std::int64_t>());
  return made;
}

}  // namespace

TEST_CASE("a golden DCP folder is read as the state dict that PyTorch saved, leaf for leaf") {
  for (const char* name : {"fsdp2_tp_2x2", "fsdp2_4", "fsdp1_full_4", "dtensor_2d_2x2", "sharded_tensor_chunk",
                           "single_rank", "options_zstd", "nested_objects"}) {
    INFO(name);
    const std::filesystem::path folder = checkpoint_data::golden() / name;
    const json expected = checkpoint_data::read_json(folder / "expected.json");
    const json planner = checkpoint_data::read_json(folder / "metadata.json")["planner_data"];
    const auto found = read_state_dict<host_tensor>(folder / "checkpoint");
    INFO((found ? "" : to_string(found.error())));
    REQUIRE(found);
    state_check all(*found);
    for (const auto& [key, tensor] : expected["tensors"].items()) all.tensor(tensor, path_of(planner[key]));
    for (const auto& [key, object] : expected["objects"].items())
      all.object(object["value"], object["type"], path_of(planner[key]));
    CHECK(found->size() == all.leaves());
  }
}
