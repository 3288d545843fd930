// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint_core;
import :rule_captures;
import :source_users;
import :state_binding;

namespace shardmesh {
namespace {

// Returns a hint with the name in a rule that is nearest to a key, without regard to numbers.
std::string nearest_rule(const mapping_rules& mapping, const std::string& key) {
  const auto without_numbers = [](std::string_view text) {
    std::string made;
    bool is_capture = false;
    for (const char c : text) {
      if (c == '{') is_capture = true;
      const bool is_number = is_capture || std::isdigit(static_cast<unsigned char>(c)) != 0;
      if (!is_number)
        made.push_back(c);
      else if (made.empty() || made.back() != '#')
        made.push_back('#');
      if (c == '}') is_capture = false;
    }
    return made;
  };
  std::vector<std::string> names;
  std::vector<std::string_view> texts;
  for (const mapping_rule& rule : mapping.rules)
    for (const named_tensor& tensor : rule.left) {
      names.push_back(without_numbers(tensor.name.text()));
      texts.push_back(tensor.name.text());
    }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto found = nearest_key(views, without_numbers(key));
  if (!found) return "";
  const auto index = std::find(views.begin(), views.end(), *found) - views.begin();
  return fmt::format("the nearest name of a rule is {}", texts[static_cast<std::size_t>(index)]);
}

}  // namespace

void check_users(const catalog& source, const bound_mapping& made, const std::vector<std::vector<std::size_t>>& users,
                 binding_problems& problems) {
  for (std::size_t i = 0; i < users.size(); ++i) {
    const tensor_entry& entry = source.tensors[i];
    if (users[i].empty()) {
      const bool suggests = problems.may_suggest();
      problems.add(fail(errc::missing_key, fmt::format("no rule of the mapping {}:{} uses this tensor",
                                                       made.mapping.left, made.mapping.right))
                       .with_key(entry.key)
                       .with_hint(suggests ? nearest_rule(made.mapping, entry.key) : ""));
    } else if (users[i].size() > 1) {
      const auto user = [&](std::size_t number) {
        return number == unused_user ? "[[ignore]] or [[tie]]" : described(made.mapping.rules[number]);
      };
      problems.add(
          fail(errc::duplicate_key, fmt::format("{} and {} use the same tensor", user(users[i][0]), user(users[i][1])))
              .with_key(entry.key));
    }
  }
  // A tied tensor is left out because its partner has the same elements, so a rule must use the partner.
  for (const unused_tensor& one : made.unused) {
    if (!one.same_as) continue;
    const std::vector<std::size_t>& of_partner = users[*one.same_as];
    if (!of_partner.empty() &&
        std::all_of(of_partner.begin(), of_partner.end(), [](std::size_t u) { return u == unused_user; }))
      problems.add(fail(errc::missing_key, fmt::format("this tensor is tied to '{}', which no rule uses",
                                                       source.tensors[*one.same_as].key))
                       .with_key(source.tensors[one.source].key)
                       .with_hint("add a rule for one of them"));
  }
}

}  // namespace shardmesh
