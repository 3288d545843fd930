// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :entry_paths;

namespace shardmesh::dcp {
namespace {

// Reads an integer key, which our own attribute stores as (0,).
std::optional<std::int64_t> integer_key_of(pickle::value step) {
  if (step.kind() != pickle::kind::tuple || step.items().size() != 1) return std::nullopt;
  return step.items()[0].as_int();
}

}  // namespace

void entry_paths::add(std::string_view key, pickle::value steps) {
  paths_.insert_or_assign(key, given_path{steps, paths_attribute});
}

// Reads another Python key, which our own attribute stores as (text, JSON).
std::optional<path_key> entry_paths::python_key_of(pickle::value step) {
  const pickle::items parts = step.items();
  if (step.kind() != pickle::kind::tuple || parts.size() != 2 || !parts[0].text() || !parts[1].text())
    return std::nullopt;
  if (!account_.spend(4 * (parts[0].text()->size() + parts[1].text()->size()), *parts[0].text())) return std::nullopt;
  auto made = torch_file::key_of_json(*parts[0].text(), *parts[1].text());
  return made ? std::optional(*std::move(made)) : std::nullopt;
}

// PyTorch writes planner_data in the order of the entries, so the next item usually has this key. The first time it
// does not, a table is built. No key is looked up twice.
std::optional<entry_paths::given_path> entry_paths::planned_path_of(std::string_view key) {
  if (planned_.empty()) {
    if (next_planned_ == planner_.size()) return std::nullopt;
    if (planner_[next_planned_].key.text() == key) return given_path{planner_[next_planned_++].value, "planner_data"};
    planned_.reserve(planner_.size());
    for (const auto [fqn, where] : planner_)
      if (const auto text = fqn.text()) planned_.emplace(*text, where);
    if (planned_.empty()) return std::nullopt;
  }
  const auto found = planned_.find(key);
  return found == planned_.end() ? std::nullopt : std::optional(given_path{found->second, "planner_data"});
}

path entry_paths::of(std::string_view key) {
  const auto later = paths_.find(key);
  const auto found = later != paths_.end() ? std::optional(later->second) : planned_path_of(key);
  if (!found) return path{std::string(key)};
  path where;
  for (const pickle::value item : found->steps.items()) {
    if (!account_.spend(48 + item.text().value_or("").size(), key)) return where;
    if (const auto number = item.as_int())
      where.push_back(*number);
    else if (const auto text = item.text())
      where.push_back(std::string(*text));
    else if (const auto integer = integer_key_of(item))
      where.push_back(path_key::of_integer(*integer));
    else if (const auto python = python_key_of(item))
      where.push_back(*python);
    else
      return account_.problem(
                 errc::bad_format,
                 fmt::format("its path in {} holds something that is neither text nor an index", found->in), key),
             path{};
  }
  if (where.empty()) where.push_back(std::string(key));
  return where;
}

}  // namespace shardmesh::dcp
