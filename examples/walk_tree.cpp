// SPDX-License-Identifier: Apache-2.0
// Your own tree type: describe its nodes, and the library visits, flattens, and rebuilds it.
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.tree;

struct setting {
  using group = std::map<std::string, setting>;
  using list = std::vector<setting>;
  std::variant<double, std::string, group, list> is;
};

template <>
struct shardmesh::node_adapter<setting> {
  static node_kind kind(const setting& s) {
    return s.is.index() < 2 ? node_kind::leaf : s.is.index() == 2 ? node_kind::mapping : node_kind::sequence;
  }
  template <class S, class Visit>
  static void children(S& s, Visit&& visit) {
    std::int64_t index = 0;
    if (auto* group = std::get_if<2>(&s.is)) {
      for (auto& [name, child] : *group)
        if (!visit(name, child)) return;
    } else if (auto* list = std::get_if<3>(&s.is)) {
      for (auto& child : *list)
        if (!visit(index++, child)) return;
    }
  }
  static setting make(node_kind kind, std::vector<std::pair<path_key, setting>> children) {
    setting::group group;
    setting::list list;
    for (auto& [key, child] : children)
      kind == node_kind::mapping ? void(group.emplace(key.name(), std::move(child))) : list.push_back(std::move(child));
    return kind == node_kind::mapping ? setting{std::move(group)} : setting{std::move(list)};
  }
};
static_assert(shardmesh::buildable_state_node<setting>);

int main() {
  using namespace shardmesh;
  setting adam{setting::group{{"lr", {1e-3}}, {"betas", {setting::list{{0.9}, {0.999}}}}}};
  setting root{setting::group{{"name", {"run 1"}}, {"optimizer", std::move(adam)}}};

  visit_leaves(root, [](const path& where, setting& s) {
    if (auto* number = std::get_if<double>(&s.is)) std::printf("%s = %g\n", to_string(where).c_str(), *number /= 2);
  });
  const auto numbers = transform(root, [](const path&, const setting& s) {
    return s.is.index() == 1 ? transformed<setting>::drop() : transformed<setting>::keep();
  });
  const auto flat = flatten_tree(*numbers).value();
  std::printf("%zu numbers, the first at %s\n", flat.leaves.size(), dotted(flat.spec.leaf_paths().at(0)).c_str());
  return find(*numbers, {"optimizer", "betas", 1}) == flat.leaves.at(1) ? 0 : 1;
}
