// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :compared_entries;
import :object_comparison;

namespace shardmesh {
namespace {

// Compares entries without a printable value by their content. A side that keeps only the type (objects.json) has
// nothing that could differ.
result<bool> have_equal_content(const diff_side& left, const whole_entry& a, const diff_side& right,
                                const whole_entry& b) {
  SHARDMESH_TRY(const auto of_left, of_side(left, left.reader.content_of(a)));
  SHARDMESH_TRY(const auto of_right, of_side(right, right.reader.content_of(b)));
  return !of_left || !of_right || *of_left == *of_right;
}

// Returns the description of a wrapping tensor without its components.
nlohmann::json without_components(const object_value& value) {
  auto description = nlohmann::json::parse(value.json, nullptr, false);
  if (!description.is_object() || !description.contains("$dict")) return description;
  auto& entries = description["$dict"];  // a list of [key, value]
  for (auto entry = entries.begin(); entry != entries.end();)
    entry = (*entry)[0] == "components" ? entries.erase(entry) : std::next(entry);
  return description;
}

// Returns a description without the entries that `others` also has.
nlohmann::json without(nlohmann::json from, const nlohmann::json& others) {
  auto& entries = from["$dict"];
  for (auto entry = entries.begin(); entry != entries.end();)
    entry = std::find(others.begin(), others.end(), *entry) != others.end() ? entries.erase(entry) : entry + 1;
  return from;
}

}  // namespace

result<std::vector<key_difference>> compare_objects(const diff_side& left, const diff_entry& a, const diff_side& right,
                                                    const diff_entry& b) {
  SHARDMESH_TRY(const object_value of_left, of_side(left, left.reader.read_object(a.index)));
  SHARDMESH_TRY(const object_value of_right, of_side(right, right.reader.read_object(b.index)));
  if (of_left.kind != of_right.kind || of_left.type != of_right.type || of_left.json != of_right.json) {
    const auto shown = [](const object_value& v) { return fmt::format("{} {}", v.type, object_text(v.json, 80)); };
    return std::vector{
        difference_at(a.key, difference_kind::object, fmt::format("{} against {}", shown(of_left), shown(of_right)))};
  }
  // The text contains only plain data; for other values, it has only the name of the type.
  if (!torch_file::has_unknown_values(of_left.json)) return std::vector<key_difference>{};
  SHARDMESH_TRY(const bool equal, have_equal_content(left, {false, a.index}, right, {false, b.index}));
  if (equal) return std::vector<key_difference>{};
  return std::vector{
      difference_at(a.key, difference_kind::object, fmt::format("the bytes of two {} differ", of_left.type))};
}

result<std::vector<key_difference>> compare_descriptions(const diff_side& left, const diff_entry& a,
                                                         const diff_side& right, const diff_entry& b) {
  SHARDMESH_TRY(const object_value of_left, of_side(left, left.reader.read_object(a.index)));
  SHARDMESH_TRY(const object_value of_right, of_side(right, right.reader.read_object(b.index)));
  auto left_rest = without_components(of_left), right_rest = without_components(of_right);
  if (left_rest == right_rest) return std::vector<key_difference>{};
  // Entries that are equal on both sides would hide the others in the text.
  if (left_rest.is_object() && right_rest.is_object()) {
    const auto rest = without(left_rest, right_rest["$dict"]);
    right_rest = without(right_rest, left_rest["$dict"]);
    left_rest = rest;
  }
  return std::vector{difference_at(
      a.key, difference_kind::object,
      fmt::format("{} against {}", object_text(left_rest.dump(), 200), object_text(right_rest.dump(), 200)))};
}

}  // namespace shardmesh
