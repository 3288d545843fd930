// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.pickle;
import :global_collector;

namespace shardmesh {
namespace {

constexpr std::size_t most_problems = 100, small_pickle = 4096, most_recent = 16;

}  // namespace

void global_collector::add(const std::string& file, const std::string& key,
                           const std::vector<pickle::used_name>& names) {
  const std::scoped_lock guard(lock_);
  for (const pickle::used_name& name : names) {
    const auto where = name.harmless ? std::tuple(false, std::string(), std::string(), name.text)
                                     : std::tuple(true, file, key, name.text);
    const auto known = index_.find(where);
    if (known != index_.end()) {
      named_global& entry = report_.names[known->second];
      entry.count += name.count;
      if (name.harmless && std::tie(file, key) < std::tie(entry.file, entry.key)) entry.file = file, entry.key = key;
      continue;
    }
    // Dangerous names have extra room, so that other names cannot crowd them out.
    if (report_.names.size() >= options_.max_names * (name.dangerous ? 2 : 1)) {
      ++report_.unnamed;
      continue;
    }
    index_.emplace(where, report_.names.size());
    report_.names.push_back({file, key, name.text, name.harmless, name.count, name.dangerous});
  }
}

// Returns how many errors are dropped: only the first ones are kept.
std::int64_t global_collector::add_to(sorted_errors& list, error e, const std::string& key) {
  if (e.key.empty()) e.key = key;
  std::tuple place(e.file, e.key, e.message);
  list.emplace(std::move(place), std::move(e));
  if (list.size() <= most_problems) return 0;
  list.erase(std::prev(list.end()));
  return 1;
}

void global_collector::problem(error e, const std::string& key) {
  const std::scoped_lock guard(lock_);
  report_.more_problems += add_to(problems_, std::move(e), key);
}

void global_collector::warning(error e, const std::string& key) {
  const std::scoped_lock guard(lock_);
  report_.more_warnings += add_to(warnings_, std::move(e), key);
}

global_report global_collector::take() {
  std::ranges::sort(report_.names, {},
                    [](const named_global& g) { return std::tuple(!g.dangerous, g.harmless, g.file, g.key, g.name); });
  for (auto& [place, problem] : problems_) report_.problems.push_back(std::move(problem));
  for (auto& [place, warning] : warnings_) report_.warnings.push_back(std::move(warning));
  return std::move(report_);
}

std::vector<pickle::used_name> global_collector::names_of(std::span<const std::byte> bytes) {
  if (bytes.size() > small_pickle) return pickle::names_in(bytes).names;
  {
    const std::scoped_lock guard(recent_lock_);
    for (const auto& [seen, names] : recent_)
      if (std::ranges::equal(seen, bytes)) return names;
  }
  std::vector<pickle::used_name> names = pickle::names_in(bytes).names;
  const std::scoped_lock guard(recent_lock_);
  if (recent_.size() < most_recent) recent_.emplace_back();
  auto& [seen, known] = recent_[next_recent_++ % most_recent];
  seen.assign(bytes.begin(), bytes.end());
  known = names;
  return names;
}

}  // namespace shardmesh
