// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <plural.hpp>
#include <range/v3/action/push_back.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/view/drop.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.comm;

import :disagreement;

namespace shardmesh {
namespace {

constexpr std::size_t named_keys = 10;

// Equal records of several ranks.
struct shared_records {
  std::vector<agreement_record> records;
  std::vector<std::int32_t> ranks;  // ascending
};

std::optional<std::vector<agreement_record>> decode_records(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  std::vector<agreement_record> records;
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) records.push_back({in.text(), in.text()});
  return in.finished() ? std::optional(std::move(records)) : std::nullopt;
}

// The different texts, each with the ranks that have it.
using rank_groups = std::vector<std::pair<std::string, std::vector<std::int32_t>>>;

// Orders the most common text first; ties go to the lowest rank.
bool by_size(const rank_groups::value_type& a, const rank_groups::value_type& b) {
  return std::tuple(b.second.size(), a.second.front()) < std::tuple(a.second.size(), b.second.front());
}

void merge(std::vector<std::int32_t>& ranks, std::span<const std::int32_t> others) {
  const auto middle = ranks.insert(ranks.end(), others.begin(), others.end());
  std::inplace_merge(ranks.begin(), middle, ranks.end());
}

// Groups keep the order in which they were added.
void add(rank_groups& groups, const std::string& text, std::span<const std::int32_t> ranks) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
  if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
  merge(group->second, ranks);
}

// One key, with its different texts and their ranks, the most common first.
struct opinions {
  std::string key;
  rank_groups groups;  // the text is "missing" for ranks without the key
};

std::string group_text(const std::pair<std::string, std::vector<std::int32_t>>& group) {
  return fmt::format("{} on {}", group.first, detail::ranks_text(group.second));
}

std::string text_of(const opinions& o) {
  std::vector<std::string> parts;
  for (const auto& group : o.groups) parts.push_back(group_text(group));
  return fmt::format("'{}' is {}", o.key, fmt::join(parts, ", "));
}

// Finds every key whose texts differ between ranks, in the order of the first rank that has the key. The n-th record of
// a key is compared with the other ranks' n-th record of that key. Sets `keys` to the number of keys compared.
std::vector<opinions> differences(std::span<const shared_records> all, std::size_t& keys) {
  std::map<std::pair<std::string_view, std::size_t>, std::vector<const std::string*>> texts;
  std::vector<const std::pair<const std::pair<std::string_view, std::size_t>, std::vector<const std::string*>>*> order;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::map<std::string_view, std::size_t> met;
    for (const agreement_record& r : all[i].records) {
      const auto [entry, is_new] = texts.try_emplace({r.key, met[r.key]++}, all.size(), nullptr);
      entry->second[i] = &r.text;
      if (is_new) order.push_back(&*entry);
    }
  }
  keys = order.size();
  std::vector<opinions> found;
  for (const auto* entry : order) {
    opinions o{std::string(entry->first.first), {}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      add(o.groups, entry->second[i] != nullptr ? *entry->second[i] : "missing", all[i].ranks);
    }
    if (o.groups.size() == 1) continue;
    std::sort(o.groups.begin(), o.groups.end(), by_size);
    found.push_back(std::move(o));
  }
  return found;
}

// The ranks that are outside the majority for at least one of the named keys.
std::vector<std::int32_t> dissenters(std::span<const opinions> named) {
  std::vector<std::int32_t> ranks;
  for (const opinions& o : named)
    for (const auto& [text, group] : o.groups | ranges::views::drop(1)) ranks |= ranges::actions::push_back(group);
  return std::move(ranks) | ranges::actions::sort | ranges::actions::unique;
}

// Finds the first position at which the ranks have different keys, given equal records in different orders.
std::optional<opinions> first_disorder(std::span<const shared_records> all, std::size_t& position) {
  for (position = 0; position < all.front().records.size(); ++position) {
    opinions o{std::to_string(position), {}};
    for (const shared_records& one : all) add(o.groups, one.records[position].key, one.ranks);
    if (o.groups.size() > 1) return o;
  }
  return std::nullopt;
}

std::string dropped_text(std::int64_t ranks) {
  if (ranks == 0) return {};
  return fmt::format("; the descriptions of {} are not compared", detail::counted(ranks, "further rank"));
}

error disagreement(std::span<const shared_records> all, const std::string& what, const std::string& rest) {
  std::size_t keys = 0, position = 0;
  const std::vector<opinions> differing = differences(all, keys);
  if (!differing.empty()) {
    const auto named = std::span(differing).first(std::min(differing.size(), named_keys));
    std::vector<std::string> parts;
    for (const opinions& o : named) parts.push_back(text_of(o));
    error e =
        fail(errc::disagreement,
             fmt::format(
                 "ranks disagree on {} of {} {}: {}{}{}", differing.size(), keys, what, fmt::join(parts, "; "),
                 differing.size() > named.size() ? fmt::format("; and {} more", differing.size() - named.size()) : "",
                 rest));
    e.key = named.front().key;
    e.ranks = dissenters(named);
    return std::move(e).with_values(group_text(named.front().groups[0]), group_text(named.front().groups[1]));
  }
  if (const auto disorder = first_disorder(all, position)) {
    error e = fail(errc::disagreement, fmt::format("ranks list the same {} in different orders, first at position {}{}",
                                                   what, position, rest));
    e.key = disorder->groups.front().first;
    e.ranks = dissenters(std::span(&*disorder, 1));
    return std::move(e).with_values(group_text(disorder->groups[0]), group_text(disorder->groups[1]));
  }
  return fail(errc::disagreement,
              fmt::format("ranks disagree on their {}, although their descriptions are equal{}", what, rest));
}

// The ranks as runs of consecutive numbers: the first, and how many.
std::vector<std::pair<std::int32_t, std::int64_t>> runs_of(std::span<const std::int32_t> ranks) {
  std::vector<std::pair<std::int32_t, std::int64_t>> runs;
  for (const std::int32_t rank : ranks) {
    if (runs.empty() || runs.back().first + runs.back().second != rank)
      runs.emplace_back(rank, 1);
    else
      ++runs.back().second;
  }
  return runs;
}

// Reads the output of `runs_of`. Takes the number of ranks from `left`, so that the memory is bounded by the group.
std::vector<std::int32_t> read_ranks(detail::wire_reader& in, std::int32_t size, std::int64_t& left) {
  std::vector<std::int32_t> ranks;
  for (std::size_t runs = in.count(); runs > 0 && in.ok(); --runs) {
    const std::int64_t first = in.in_range(0, std::int64_t{size} - 1);
    const std::int64_t length = in.in_range(1, std::min(left, size - first));
    left -= length;
    for (std::int64_t rank = first; rank < first + length; ++rank) ranks.push_back(static_cast<std::int32_t>(rank));
  }
  return ranks;
}

}  // namespace

void contributions::add(contribution one) {
  const auto same =
      std::find_if(kept.begin(), kept.end(), [&](const contribution& known) { return known.bytes == one.bytes; });
  if (same == kept.end())
    kept.push_back(std::move(one));
  else
    merge(same->ranks, one.ranks);
}

void contributions::keep_first() {
  std::sort(kept.begin(), kept.end(),
            [](const contribution& a, const contribution& b) { return a.ranks.front() < b.ranks.front(); });
  for (; kept.size() > most; kept.pop_back()) dropped += std::ssize(kept.back().ranks);
}

std::vector<std::byte> contributions::encode() const {
  detail::wire_writer out;
  out.number(dropped);
  out.number(std::ssize(kept));
  for (const contribution& one : kept) {
    out.bytes(one.bytes);
    const auto runs = runs_of(one.ranks);
    out.number(std::ssize(runs));
    for (const auto& [first, length] : runs) {
      out.number(first);
      out.number(length);
    }
  }
  return std::move(out).take();
}

std::optional<contributions> contributions::decode(std::span<const std::byte> bytes, std::int32_t ranks) {
  detail::wire_reader in(bytes);
  contributions all;
  all.dropped = in.in_range(0, ranks);
  std::int64_t left = ranks;
  for (std::size_t groups = in.count(); groups > 0 && in.ok(); --groups) {
    contribution one{in.bytes(), {}};
    one.ranks = read_ranks(in, ranks, left);
    if (one.ranks.empty() || !std::is_sorted(one.ranks.begin(), one.ranks.end())) return std::nullopt;
    all.kept.push_back(std::move(one));
  }
  return in.finished() ? std::optional(std::move(all)) : std::nullopt;
}

std::vector<std::byte> encode_records(std::span<const agreement_record> records) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(records.size()));
  for (const agreement_record& r : records) {
    out.text(r.key);
    out.text(r.text);
  }
  return std::move(out).take();
}

std::string call_with_notes(std::string_view call, bool combines) {
  return fmt::format("{} ({} notes)", call, combines ? "combined" : "separate");
}

error different_calls(const contributions& calls) {
  opinions all;
  std::vector<std::string> parts;
  for (const contribution& one : calls.kept) {
    const std::string call(reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size());
    all.groups.emplace_back(call, one.ranks);
    parts.push_back(fmt::format("{} called {}", detail::ranks_text(one.ranks), call));
  }
  std::sort(all.groups.begin(), all.groups.end(), by_size);
  error e = fail(errc::disagreement, fmt::format("ranks are in different calls: {}{}", fmt::join(parts, ", "),
                                                 dropped_text(calls.dropped)));
  e.ranks = dissenters(std::span(&all, 1));
  return e;
}

error different_records(const contributions& lists, const std::string& what) {
  std::vector<shared_records> all;
  for (const contribution& one : lists.kept) {
    auto records = decode_records(one.bytes);
    if (!records)
      return fail(errc::disagreement, fmt::format("the description of a rank's {} cannot be read", what))
          .with_rank(one.ranks.front());
    all.push_back({*std::move(records), one.ranks});
  }
  return disagreement(all, what, dropped_text(lists.dropped));
}

error in_another_call(std::int32_t rank, const std::string& what) {
  return fail(errc::disagreement, fmt::format("a rank is in another call while the others compare {}", what))
      .with_rank(rank);
}

}  // namespace shardmesh
