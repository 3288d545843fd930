// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.fsdp;

import :load_choice;
import :rank_note;

namespace shardmesh::detail {
namespace {

constexpr std::size_t named_keys = 100;  // at most this many wrong keys are named; the rest are counted

}  // namespace

load_choice choose_entries(std::span<const fsdp_entry> entries, std::span<const rank_note> notes) {
  load_choice made;
  const auto is_offered = [&](std::size_t i) {
    return std::any_of(notes.begin(), notes.end(), [&](const rank_note& n) { return n.kinds[i] != offer_kind::none; });
  };
  std::set<std::size_t> flat_units;
  std::set<std::pair<std::size_t, std::size_t>> taken;  // unit, parameter
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].kind == fsdp_entry_kind::flat && is_offered(i)) flat_units.insert(entries[i].unit);
  // A parameter's own name takes precedence over shared ones.
  for (const bool shared : {false, true})
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const fsdp_entry& entry = entries[i];
      if ((entry.kind == fsdp_entry_kind::shared_parameter) != shared || !is_offered(i)) continue;
      if (entry.kind == fsdp_entry_kind::flat || entry.kind == fsdp_entry_kind::tensor ||
          (!flat_units.contains(entry.unit) && taken.emplace(entry.unit, entry.index).second))
        made.sources.push_back(i);
    }
  std::sort(made.sources.begin(), made.sources.end());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const fsdp_entry& entry = entries[i];
    if (std::binary_search(made.sources.begin(), made.sources.end(), i))
      made.entries.push_back({entry.key, load_status::loaded});
    else if (entry.kind == fsdp_entry_kind::flat)
      continue;  // only an alternative to the names of its parameters, which are listed
    else if (entry.kind != fsdp_entry_kind::tensor && flat_units.contains(entry.unit))
      made.entries.push_back({entry.key, load_status::superseded});
    else
      made.entries.push_back({entry.key, is_offered(i) ? load_status::shared : load_status::missing});
  }
  std::set<std::string> unexpected;
  for (const rank_note& note : notes) unexpected.insert(note.unexpected.begin(), note.unexpected.end());
  for (const std::string& key : unexpected) made.entries.push_back({key, load_status::unexpected});
  return made;
}

result<void> check_agreement(std::span<const fsdp_entry> entries, std::span<const std::size_t> sources,
                             std::span<const rank_note> notes) {
  const auto text = [](const rank_note& note, std::size_t i) {
    return fmt::format("{} {}", note.kinds[i] == offer_kind::whole ? "whole" : "sharded", name(note.types[i]));
  };
  for (const std::size_t i : sources) {
    std::optional<std::size_t> first;
    for (std::size_t r = 0; r < notes.size(); ++r) {
      if (notes[r].kinds[i] == offer_kind::none) continue;
      // A rank that holds nothing of a dtensor does not know its dtype.
      const bool is_unknown =
          notes[r].types[i] == dtype::undefined || (first && notes[*first].types[i] == dtype::undefined);
      if (first &&
          (notes[*first].kinds[i] != notes[r].kinds[i] || (!is_unknown && notes[*first].types[i] != notes[r].types[i])))
        return fail(errc::disagreement, "ranks disagree on a value of their state dicts")
            .with_key(entries[i].key)
            .with_rank(static_cast<std::int32_t>(*first))
            .with_rank(static_cast<std::int32_t>(r))
            .with_values(text(notes[*first], i), text(notes[r], i));
      if (!first || notes[*first].types[i] == dtype::undefined) first = r;
    }
  }
  return {};
}

result<void> check_complete(const load_state_report& report) {
  const auto missing = report.keys(load_status::missing), unexpected = report.keys(load_status::unexpected);
  if (missing.empty() && unexpected.empty()) return {};
  const auto listed = [](const std::vector<std::string>& keys) {
    const std::size_t shown = std::min(keys.size(), named_keys);
    return fmt::format("{}{}", fmt::join(std::span(keys).first(shown), ", "),
                       shown < keys.size() ? fmt::format(" and {} more", keys.size() - shown) : "");
  };
  std::string text = "the state dict does not fit the model:";
  if (!missing.empty()) text += fmt::format(" missing {}", listed(missing));
  if (!unexpected.empty()) text += fmt::format("{} unexpected {}", missing.empty() ? "" : ";", listed(unexpected));
  return fail(errc::missing_key, text).with_hint("use load_mode::report to load the entries that fit");
}

}  // namespace shardmesh::detail
