// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <mapping/shipped_mappings.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// A shipped mapping as a step between two conventions.
struct search_step {
  std::size_t mapping = 0;
  bool is_inverse = false;
};

// The hint for a wrong name.
std::string known_conventions(const std::vector<shipped_convention>& shipped) {
  std::vector<std::string> names;
  for (const shipped_convention& one : shipped) names.push_back(one.left), names.push_back(one.right);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string known;
  for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
  return fmt::format("name two of the conventions {}, or pass the path of a TOML file", known);
}

}  // namespace

std::vector<shipped_convention> shipped_conventions() {
  std::vector<shipped_convention> made;
  for (const detail::shipped_mapping& one : detail::shipped_mappings()) {
    // "hf.llama--meta.llama.toml"
    const std::string_view stem = one.file.substr(0, one.file.rfind('.'));
    const std::size_t middle = stem.find("--");
    made.push_back({std::string(stem.substr(0, middle)), std::string(stem.substr(middle + 2)), one.text});
  }
  std::sort(made.begin(), made.end(),
            [](const auto& a, const auto& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  return made;
}

result<std::string_view> shipped_mapping_text(std::string_view name) {
  std::string names;
  for (const shipped_convention& one : shipped_conventions()) {
    if (name == fmt::format("{}:{}", one.left, one.right) || name == fmt::format("{}:{}", one.right, one.left))
      return one.text;
    names += fmt::format("{}{}:{}", names.empty() ? "" : ", ", one.left, one.right);
  }
  return fail(errc::invalid_argument, fmt::format("there is no mapping '{}'", name))
      .with_hint(fmt::format("name one of {}; a chain of mappings has several texts", names));
}

result<std::vector<mapping_rules>> find_mappings(std::string_view name) {
  const std::size_t middle = name.find(':');
  if (middle == std::string_view::npos || middle == 0 || middle + 1 == name.size())
    return fail(errc::invalid_argument, "a mapping is named by two conventions")
        .with_values("FROM:TO, such as hf.llama:meta.llama", std::string(name))
        .with_hint(known_conventions(shipped_conventions()));
  const std::string from(name.substr(0, middle)), to(name.substr(middle + 1));
  const std::vector<shipped_convention> shipped = shipped_conventions();
  // A breadth-first search over the conventions; `reached` has the step that led to each.
  std::map<std::string, search_step> reached{{from, {}}};
  std::queue<std::string> next;
  next.push(from);
  while (!next.empty() && !reached.contains(to)) {
    const std::string here = std::move(next.front());
    next.pop();
    for (std::size_t i = 0; i < shipped.size(); ++i) {
      const bool is_inverse = shipped[i].right == here;
      if (!is_inverse && shipped[i].left != here) continue;
      const std::string& there = is_inverse ? shipped[i].left : shipped[i].right;
      if (reached.emplace(there, search_step{i, is_inverse}).second) next.push(there);
    }
  }
  if (!reached.contains(to) || from == to)
    return fail(errc::invalid_argument, fmt::format("no mapping leads from '{}' to '{}'", from, to))
        .with_hint(known_conventions(shipped));
  std::vector<mapping_rules> made;
  for (std::string here = to; here != from;) {
    const search_step& last = reached.find(here)->second;
    const shipped_convention& mapping = shipped[last.mapping];
    SHARDMESH_TRY(mapping_rules rules, parse_mapping(mapping.text, fmt::format("{}:{}", mapping.left, mapping.right)));
    made.push_back(last.is_inverse ? rules.inverse() : std::move(rules));
    here = last.is_inverse ? mapping.right : mapping.left;
  }
  std::reverse(made.begin(), made.end());
  return made;
}

}  // namespace shardmesh
