// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// A capture may have millions of values, and the name is spelled for each.
constexpr std::size_t most_characters = 4096;

}  // namespace

result<name_template> name_template::parse(std::string_view text) {
  const auto refuse = [&](std::string_view message) {
    return fail(errc::invalid_argument, fmt::format("the name '{}' {}", text, message));
  };
  if (text.empty()) return fail(errc::invalid_argument, "a tensor's name is empty");
  if (text.size() > most_characters)
    return fail(errc::invalid_argument, "a tensor's name is too long")
        .with_values(fmt::format("at most {} characters", most_characters), fmt::format("{}", text.size()));
  name_template made;
  made.text_ = text;
  part here;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_doubled = (c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c;
    if (is_doubled) ++i;
    if (is_doubled || (c != '{' && c != '}')) {
      here.literal.push_back(c);
      continue;
    }
    const std::size_t end = c == '{' ? text.find('}', i) : std::string_view::npos;
    if (end == std::string_view::npos) return refuse(fmt::format("has a '{}' without its partner", c));
    auto number = size_expression::parse(text.substr(i + 1, end - i - 1));
    if (!number) return std::move(number).error();
    for (std::string& name : number->names())
      if (std::find(made.captures_.begin(), made.captures_.end(), name) == made.captures_.end())
        made.captures_.push_back(std::move(name));
    here.number = *std::move(number);
    made.parts_.push_back(std::exchange(here, {}));
    i = end;
  }
  if (!here.literal.empty()) made.parts_.push_back(std::move(here));
  return made;
}

result<std::string> name_template::spell(const named_sizes& values) const {
  std::string made;
  for (const part& one : parts_) {
    made += one.literal;
    if (!one.number) continue;
    SHARDMESH_TRY(const std::int64_t number, one.number->evaluate(values));
    if (number < 0)
      return fail(errc::invalid_argument, fmt::format("a capture of the name '{}' is negative", text_))
          .with_values("0 or more", fmt::format("{}", number));
    fmt::format_to(std::back_inserter(made), "{}", number);
  }
  return made;
}

}  // namespace shardmesh
