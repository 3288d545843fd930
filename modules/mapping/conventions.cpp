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

// The names of all conventions, sorted. They refer to `shipped`.
std::vector<std::string_view> convention_names(const std::vector<shipped_convention>& shipped) {
  std::vector<std::string_view> names;
  for (const shipped_convention& one : shipped) names.push_back(one.left), names.push_back(one.right);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view one : names) text += fmt::format("{}{}", text.empty() ? "" : ", ", one);
  return text;
}

// The hint for a name of another form.
std::string known_conventions(const std::vector<std::string_view>& names) {
  return fmt::format("name two of the conventions {}, or pass the path of a TOML file", joined(names));
}

// Checks that a convention has this name.
result<void> check_convention(const std::vector<std::string_view>& names, std::string_view wanted) {
  if (std::binary_search(names.begin(), names.end(), wanted)) return {};
  std::string hint = did_you_mean(nearest_key(names, wanted));
  if (hint.empty()) hint = known_conventions(names);
  return fail(errc::invalid_argument, fmt::format("no convention is called '{}'", wanted)).with_hint(std::move(hint));
}

// The hint where no shipped text has this name: a chain of mappings has several.
std::string hint_for_text(std::string_view name, const std::vector<std::string_view>& known) {
  if (const auto chain = find_mappings(name)) {
    std::string texts;
    for (const mapping_rules& one : *chain) texts += fmt::format("{}{}", texts.empty() ? "" : ", ", one.file);
    return fmt::format("request the texts of the mappings in its chain: {}", texts);
  }
  std::string hint = did_you_mean(nearest_key(known, name));
  return hint.empty() ? fmt::format("name one of {}", joined(known)) : hint;
}

}  // namespace

std::vector<shipped_convention> shipped_conventions() {
  std::vector<shipped_convention> made;
  for (const detail::shipped_mapping& one : detail::shipped_mappings()) {
    // "meta/hf.llama--meta.llama.toml"
    const std::size_t begin = one.file.rfind('/') + 1;
    const std::string_view stem = one.file.substr(begin, one.file.rfind('.') - begin);
    const std::size_t middle = stem.find("--");
    made.push_back({std::string(stem.substr(0, middle)), std::string(stem.substr(middle + 2)), one.text});
  }
  std::sort(made.begin(), made.end(),
            [](const auto& a, const auto& b) { return std::pair(a.left, a.right) < std::pair(b.left, b.right); });
  return made;
}

result<std::string_view> shipped_mapping_text(std::string_view name) {
  std::vector<std::string> names;
  for (const shipped_convention& one : shipped_conventions()) {
    names.push_back(fmt::format("{}:{}", one.left, one.right));
    if (name == names.back() || name == fmt::format("{}:{}", one.right, one.left)) return one.text;
  }
  return fail(errc::invalid_argument, fmt::format("there is no text of a mapping '{}'", name))
      .with_hint(hint_for_text(name, {names.begin(), names.end()}));
}

result<std::vector<mapping_rules>> find_mappings(std::string_view name) {
  const std::vector<shipped_convention> shipped = shipped_conventions();
  const std::vector<std::string_view> names = convention_names(shipped);
  const std::size_t middle = name.find(':');
  if (middle == std::string_view::npos || middle == 0 || middle + 1 == name.size())
    return fail(errc::invalid_argument, "a mapping is named by two conventions")
        .with_values("FROM:TO, such as hf.llama:meta.llama", std::string(name))
        .with_hint(known_conventions(names));
  const std::string from(name.substr(0, middle)), to(name.substr(middle + 1));
  SHARDMESH_TRY(check_convention(names, from));
  SHARDMESH_TRY(check_convention(names, to));
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
        .with_hint(known_conventions(names));
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
