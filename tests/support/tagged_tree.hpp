// SPDX-License-Identifier: Apache-2.0
// A Python object tree in the form of the golden files (tagged JSON, tests/data/golden/README.md). Its node_adapter
// needs module tree and is in shardmesh.test.tagged_tree.
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tagged {

using key = std::variant<std::int64_t, std::string>;

struct node {
  // Python's type name; containers are dict, OrderedDict, list, and tuple.
  std::string type = "NoneType";
  nlohmann::json leaf;                           // a leaf's JSON
  std::vector<std::pair<key, node>> children{};  // a container's children

  bool is_mapping() const { return type == "dict" || type == "OrderedDict"; }
  bool is_container() const { return is_mapping() || type == "list" || type == "tuple"; }
  friend bool operator==(const node&, const node&) = default;
};

/// Python's `str(key)` for keys that are neither int nor str: PyTorch keeps only this text.
inline std::string python_text(const nlohmann::json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_object() && value.contains("$float")) {
    nlohmann::json number = std::stod(value["$float"].get<std::string>());
    return number.dump();
  }
  if (value.is_object() && value.contains("$tuple")) {
    std::string text;
    for (const auto& item : value["$tuple"]) text += (text.empty() ? "(" : ", ") + item.dump();
    return text + ")";
  }
  throw std::runtime_error("a key of an unknown kind: " + value.dump());
}

inline node parse(const nlohmann::json& value) {
  const auto sequence = [](const char* type, const nlohmann::json& items) {
    node made{type, nullptr};
    for (const auto& item : items)
      made.children.emplace_back(static_cast<std::int64_t>(made.children.size()), parse(item));
    return made;
  };
  if (value.is_array()) return sequence("list", value);
  if (value.is_null()) return {"NoneType", value};
  if (value.is_boolean()) return {"bool", value};
  if (value.is_number_integer()) return {"int", value};
  if (value.is_string()) return {"str", value};
  if (value.contains("$tuple")) return sequence("tuple", value["$tuple"]);
  for (const char* tag : {"$dict", "$odict"}) {
    if (!value.contains(tag)) continue;
    node made{std::string(tag) == "$dict" ? "dict" : "OrderedDict", nullptr};
    for (const auto& [k, child] : value[tag].get<std::vector<std::pair<nlohmann::json, nlohmann::json>>>()) {
      if (k.is_number_integer())
        made.children.emplace_back(k.get<std::int64_t>(), parse(child));
      else
        made.children.emplace_back(k.is_string() ? k.get<std::string>() : python_text(k), parse(child));
    }
    return made;
  }
  return {value.begin().key().substr(1), value};  // $tensor, $float, $bytes, $set, $size, $int, ...
}

/// The inverse of parse, except for keys that are neither int nor str.
inline nlohmann::json to_json(const node& n) {
  if (!n.is_container()) return n.leaf;
  nlohmann::json items = nlohmann::json::array();
  for (const auto& [k, child] : n.children) {
    if (!n.is_mapping())
      items.push_back(to_json(child));
    else if (k.index() == 0)
      items.push_back({std::get<0>(k), to_json(child)});
    else
      items.push_back({std::get<1>(k), to_json(child)});
  }
  if (n.type == "list") return items;
  return {{n.type == "dict" ? "$dict" : n.type == "OrderedDict" ? "$odict" : "$tuple", items}};
}

}  // namespace tagged
