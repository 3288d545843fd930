// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <entry_error.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :compared_entries;
import :entry_comparison;
import :selected_sides;

namespace shardmesh {

diff_side whole_side(checkpoint_reader& reader) {
  diff_side side{reader, {}};
  const catalog& contents = reader.contents();
  for (const auto& [i, tensor] : ranges::views::enumerate(contents.tensors))
    side.entries.push_back({tensor.key, i, true, tensor.type});
  for (const auto& [i, object] : ranges::views::enumerate(contents.objects))
    side.entries.push_back({object.key, i, false, dtype::undefined});
  return side;
}

result<diff_report> diff(const diff_side& left, const diff_side& right, const diff_options& options) {
  const detail::call_scope limits(options.call().named("comparison"));
  if (!(options.tolerance >= 0)) return fail(errc::invalid_argument, "a tolerance must be a number of 0 or more");
  const auto by_key = pairs_of(left, right);
  const std::vector<std::pair<std::string_view, pair_of_entries>> pairs(by_key.begin(), by_key.end());
  left.reader.identify_opaque_tensors();
  right.reader.identify_opaque_tensors();
  entry_comparer compare_all(left, right, options);
  compare_all.find_components(by_key);
  compare_all.find_gaps(by_key);
  std::vector<std::vector<key_difference>> found_in(pairs.size());
  std::vector<std::optional<error>> unreadable(pairs.size());
  SHARDMESH_TRY(
      parallel_for(options.threads, static_cast<std::int64_t>(pairs.size()), [&](std::int64_t i) -> result<void> {
        SHARDMESH_TRY(detail::check_current_call());
        const auto at = static_cast<std::size_t>(i);
        auto outcome = compare_all.compare_pair(pairs[at].second);
        if (outcome)
          found_in[at] = std::move(*outcome);
        else if (detail::is_limit_error(outcome.error()))
          return std::move(outcome).error();
        else
          unreadable[at] = std::move(outcome).error();
        return {};
      }));
  diff_report report;
  for (auto&& [pair, differences, failure] : ranges::views::zip(pairs, found_in, unreadable)) {
    const auto& [a, b] = pair.second;
    if (a && b && a->is_tensor && b->is_tensor) {
      ++report.tensors;
      const catalog& contents = left.reader.contents();
      report.bytes = checked_add(report.bytes, bytes_of(contents, contents.tensors[a->index])).value_or(INT64_MAX);
    } else if (a && b && !a->is_tensor && !b->is_tensor) {
      ++report.objects;
    }
    std::move(differences.begin(), differences.end(), std::back_inserter(report.differences));
    if (!failure) continue;
    std::string key(pair.first);
    error cause = std::move(*failure);
    if (cause.key.empty()) cause = detail::at_entry(std::move(cause), key);
    if (cause.file.empty()) cause.file = printable_url((a ? left : right).reader.path().string());
    error shown = cause;
    if (shown.key == key) shown.key.clear();
    report.differences.push_back(
        difference_at(key, difference_kind::unreadable, fmt::format("cannot be read: {}", to_string(shown))));
    report.problems.push_back(std::move(cause));
  }
  for (const diff_side* side : {&left, &right})
    if (auto checked = of_side(*side, side->reader.finish_checks()); !checked) {
      error shown = checked.error();
      shown.key.clear();
      report.differences.push_back(difference_at(checked.error().key, difference_kind::unreadable,
                                                 fmt::format("cannot be read: {}", to_string(shown))));
      report.problems.push_back(std::move(checked).error());
    }
  return report;
}

result<diff_report> diff(checkpoint_reader& left, checkpoint_reader& right, const diff_options& options) {
  const detail::call_scope limits(options.call().named("comparison"));
  const comparable_views both(left, right);
  SHARDMESH_TRY(selected_sides sides, select_sides(both.left(), both.right(), options.selection));
  SHARDMESH_TRY(diff_report report, diff(sides.left, sides.right, options));
  report.notes = std::move(sides.notes);
  return report;
}

}  // namespace shardmesh
