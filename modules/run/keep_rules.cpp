// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.run;

namespace shardmesh {
namespace {

// The steps with a metric, the best first.
std::vector<std::size_t> by_metric(std::span<const run_step> steps, bool highest_is_best) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (steps[i].metric) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double left = *steps[a].metric, right = *steps[b].metric;
    if (left < right || right < left) return highest_is_best ? right < left : left < right;
    return a > b;
  });
  return order;
}

}  // namespace

result<void> check_rules(const keep_rules& rules) {
  const std::pair<std::string_view, std::int64_t> numbers[] = {
      {"last", rules.last}, {"every", rules.every}, {"best", rules.best}};
  for (const auto& [rule, number] : numbers)
    if (number < 0)
      return fail(errc::invalid_argument, fmt::format("the keep rule '{}' is negative", rule))
          .with_values("0 or more", fmt::format("{}", number));
  return {};
}

std::vector<std::vector<std::string>> reasons_to_keep(std::span<const run_step> steps, const keep_rules& rules) {
  std::vector<std::vector<std::string>> reasons(steps.size());
  const auto count = static_cast<std::int64_t>(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!rules.any()) reasons[i].emplace_back("no rule");
    if (static_cast<std::int64_t>(i) >= count - std::min(rules.last, count))
      reasons[i].push_back(fmt::format("last {}", rules.last));
    if (rules.every > 0 && steps[i].step % rules.every == 0) reasons[i].push_back(fmt::format("every {}", rules.every));
    if (rules.since && steps[i].saved >= *rules.since) reasons[i].emplace_back("since");
    if (steps[i].is_pinned) reasons[i].emplace_back("pinned");
  }
  const std::vector<std::size_t> best = by_metric(steps, rules.highest_is_best);
  for (std::size_t i = 0; i < best.size() && static_cast<std::int64_t>(i) < rules.best; ++i)
    reasons[best[i]].push_back(fmt::format("best {}", rules.best));
  return reasons;
}

}  // namespace shardmesh
