// SPDX-License-Identifier: Apache-2.0
// nlohmann::json as a tree: compares two documents, and turns one into names and values and back.
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.tree;

using json = nlohmann::ordered_json;

template <>
struct shardmesh::node_adapter<json> {
  static node_kind kind(const json& j) {
    return j.is_object() ? node_kind::mapping : j.is_array() ? node_kind::sequence : node_kind::leaf;
  }
  template <class J, class Visit>
  static void children(J& j, Visit&& visit) {
    if (!j.is_structured()) return;
    std::int64_t index = 0;
    for (auto at = j.begin(); at != j.end(); ++at)
      if (!(j.is_object() ? visit(at.key(), *at) : visit(index++, *at))) return;
  }
  static json make(node_kind kind, std::vector<std::pair<path_key, json>> children) {
    json made = kind == node_kind::mapping ? json::object() : json::array();
    for (auto& [key, child] : children)
      kind == node_kind::mapping ? void(made[std::string(key.name())] = std::move(child))
                                 : made.push_back(std::move(child));
    return made;
  }
};

int main() {
  using namespace shardmesh;
  const json before = json::parse(R"({"lr": 0.1, "layers": [{"width": 64}, {"width": 128}], "seed": 1})");
  const json after = json::parse(R"({"layers": [{"width": 64}, {"width": 256}], "lr": 0.1, "tag": null})");

  int differences = 0;
  visit_together(before, after, [&](const path& where, const json* a, const json* b) {
    if (a && b && (*a == *b || (a->is_structured() && a->type() == b->type()))) return visit_step::into;
    std::printf("%s: %s -> %s\n", to_string(where).c_str(), a ? a->dump().c_str() : "nothing",
                b ? b->dump().c_str() : "nothing");
    return ++differences, visit_step::over;
  });

  const auto flat = flatten_tree(before).value();
  std::vector<json> leaves;
  for (const json* leaf : flat.leaves) leaves.push_back(*leaf);
  return differences == 3 && build(flat.spec, std::move(leaves)).value() == before ? 0 : 1;
}
