// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :binding_problems;
import :capture_values;

namespace shardmesh {
namespace {

// Bounds the names that an untrusted configuration can generate.
constexpr std::int64_t most_names = std::int64_t{1} << 22;
constexpr std::int64_t most_name_bytes = std::int64_t{1} << 29;
// Values of captures between two looks at the limits of the call. A condition may take some microseconds for each.
constexpr std::int64_t values_between_checks = 256;

}  // namespace

result<void> capture_values::set(const mapping_rules& mapping, named_sizes sizes, const missing_sizes& missing) {
  sizes_ = std::move(sizes);
  std::unordered_set<std::string_view> names;
  for (const named_expression& size : mapping.sizes) names.insert(size.name);
  for (const named_expression& one : mapping.captures) {
    if (names.contains(one.name))
      return problems_.located(fail(errc::invalid_argument, fmt::format("'{}' is a size and a capture", one.name))
                                   .with_hint("give one of them another name"));
    const auto found = sizes_.find(one.name);
    if (found == sizes_.end()) return problems_.located(missing.find(one.name)->second);
    if (found->second < 0)
      return problems_.located(
          fail(errc::invalid_argument, fmt::format("the range of the capture '{}' is negative", one.name))
              .with_values("0 or more", fmt::format("{}", found->second)));
    ranges_.emplace(one.name, found->second);
  }
  return {};
}

bool capture_values::is_capture(const std::string& name) const {
  return ranges_.contains(name);
}

std::int64_t capture_values::range_of(const std::string& capture) const {
  return ranges_.find(capture)->second;
}

result<void> capture_values::for_each(const std::vector<std::string>& captures, function_ref<result<void>()> visit) {
  std::int64_t count = 1;
  for (const std::string& name : captures) count = checked_multiply(count, range_of(name)).value_or(most_names + 1);
  if (count > most_names || names_ > most_names - count) {
    std::string found;
    for (const auto& [name, range] : ranges_) found += fmt::format("{}{} = {}", found.empty() ? "" : ", ", name, range);
    return problems_.located(fail(errc::overflow, "the ranges of the captures make too many names")
                                 .with_values(fmt::format("at most {}", most_names), std::move(found))
                                 .with_hint("check the configuration, or pass a range as a size"));
  }
  names_ += count;
  named_sizes before;
  for (const std::string& name : captures) {
    const auto found = sizes_.find(name);
    if (found != sizes_.end()) before.insert(*found);
  }
  result<void> done;
  for (std::int64_t i = 0; i < count && done; ++i) {
    if (problems_.are_too_many()) return std::move(problems_).take();
    if (i % values_between_checks == 0) SHARDMESH_TRY(detail::check_current_call());
    std::int64_t rest = i;
    for (std::size_t c = captures.size(); c-- > 0;) {
      const std::int64_t range = range_of(captures[c]);
      sizes_[captures[c]] = rest % range;
      rest /= range;
    }
    done = visit();
  }
  for (const std::string& name : captures) {
    const auto found = before.find(name);
    if (found != before.end()) sizes_[name] = found->second;
  }
  return done;
}

result<bool> capture_values::applies(const std::optional<size_expression>& condition,
                                     const std::vector<std::string>& captures) const {
  if (!condition) return true;
  for (const std::string& name : condition->names())
    if (is_capture(name) && std::find(captures.begin(), captures.end(), name) == captures.end())
      return problems_.located(fail(errc::invalid_argument,
                                    fmt::format("the condition '{}' uses the capture '{}', which has no one value here",
                                                condition->text(), name))
                                   .with_hint("use captures that the names of both sides have"));
  auto value = condition->evaluate(sizes_);
  if (!value) return problems_.located(std::move(value).error());
  return *value != 0;
}

result<std::vector<std::string>> capture_values::spell_all(const name_template& name,
                                                           const std::vector<std::string>& stacked) {
  std::vector<std::string> made;
  SHARDMESH_TRY(for_each(stacked, [&]() -> result<void> {
    auto spelled = name.spell(sizes_);
    if (!spelled) return problems_.located(std::move(spelled).error());
    if ((name_bytes_ += static_cast<std::int64_t>(spelled->size())) > most_name_bytes)
      return problems_.located(fail(errc::overflow, "the names that the captures make are too long together")
                                   .with_values(fmt::format("at most {} bytes", most_name_bytes), "more"));
    made.push_back(*std::move(spelled));
    return {};
  }));
  return made;
}

}  // namespace shardmesh
