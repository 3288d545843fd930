// SPDX-License-Identifier: Apache-2.0
// Compares digests first. Records are exchanged and searched for differences only when the digests differ.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <plural.hpp>
#include <range/v3/action/push_back.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/view/drop.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.comm;

import shardmesh.digest;

namespace shardmesh {
namespace {

constexpr std::int64_t ballot_mark = 0x6565726761'6d73;  // "smagree"; a rank that sends no mark is in another call
constexpr std::size_t named_keys = 10;

using records_of_rank = std::vector<agreement_record>;

digest128 hash(std::string_view bytes) {
  return xxh3(std::as_bytes(std::span(bytes)));
}

// A rank's contribution to the first round.
struct ballot {
  digest128 digest;
  bool has_problem = false;
  std::string call;
  std::vector<std::byte> note;
};

std::vector<std::byte> encode(const digest128& digest, const agree_options& options, std::string_view call) {
  detail::wire_writer out;
  out.number(ballot_mark);
  out.digest(digest);
  out.flag(options.problem != nullptr);
  out.text(call);
  out.raw(options.note);
  return std::move(out).take();
}

std::optional<ballot> decode_ballot(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  if (in.number() != ballot_mark) return std::nullopt;
  ballot said{in.digest(), in.flag(), in.text(), {}};
  said.note.assign(in.rest().begin(), in.rest().end());
  return in.ok() ? std::optional(std::move(said)) : std::nullopt;
}

std::vector<std::byte> encode(std::span<const agreement_record> records) {
  detail::wire_writer out;
  out.number(static_cast<std::int64_t>(records.size()));
  for (const agreement_record& r : records) {
    out.text(r.key);
    out.text(r.text);
  }
  return std::move(out).take();
}

std::optional<records_of_rank> decode_records(std::span<const std::byte> bytes) {
  detail::wire_reader in(bytes);
  records_of_rank records;
  for (std::size_t left = in.count(); left > 0 && in.ok(); --left) records.push_back({in.text(), in.text()});
  return in.ok() ? std::optional(std::move(records)) : std::nullopt;
}

// The different texts, each with the ranks that have it.
using rank_groups = std::vector<std::pair<std::string, std::vector<std::int32_t>>>;

// Orders the most common text first; ties go to the lowest rank.
bool by_size(const rank_groups::value_type& a, const rank_groups::value_type& b) {
  return std::tuple(b.second.size(), a.second.front()) < std::tuple(a.second.size(), b.second.front());
}

void add(rank_groups& groups, const std::string& text, std::size_t rank) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
  if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
  group->second.push_back(static_cast<std::int32_t>(rank));
}

// One key, with its different texts and their ranks, the most common first.
struct opinions {
  std::string key;
  rank_groups groups;  // the text is "missing" for ranks without the key

  const std::vector<std::int32_t>& majority() const { return groups.front().second; }
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
std::vector<opinions> differences(std::span<const records_of_rank> all, std::size_t& keys) {
  std::map<std::pair<std::string_view, std::size_t>, std::vector<const std::string*>> texts;
  std::vector<const std::pair<const std::pair<std::string_view, std::size_t>, std::vector<const std::string*>>*> order;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::map<std::string_view, std::size_t> met;
    for (const agreement_record& r : all[rank]) {
      const auto [entry, is_new] = texts.try_emplace({r.key, met[r.key]++}, all.size(), nullptr);
      entry->second[rank] = &r.text;
      if (is_new) order.push_back(&*entry);
    }
  }
  keys = order.size();
  std::vector<opinions> found;
  for (const auto* entry : order) {
    opinions o{std::string(entry->first.first), {}};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      add(o.groups, entry->second[rank] != nullptr ? *entry->second[rank] : "missing", rank);
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
std::optional<opinions> first_disorder(std::span<const records_of_rank> all, std::size_t& position) {
  for (position = 0; position < all.front().size(); ++position) {
    opinions o{std::to_string(position), {}};
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      add(o.groups, all[rank][position].key, rank);
    }
    if (o.groups.size() > 1) return o;
  }
  return std::nullopt;
}

error different_calls(rank_groups groups) {
  std::sort(groups.begin(), groups.end(), by_size);
  opinions calls{{}, groups};
  // Lists the calls in the order of ranks, as readers expect.
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::string> parts;
  for (const auto& [call, ranks] : groups)
    parts.push_back(fmt::format("{} called {}", detail::ranks_text(ranks), call));
  error e = fail(errc::disagreement, fmt::format("ranks are in different calls: {}", fmt::join(parts, ", ")));
  e.ranks = dissenters(std::span(&calls, 1));
  return e;
}

error disagreement(std::span<const records_of_rank> all, const std::string& what) {
  std::size_t keys = 0, position = 0;
  const std::vector<opinions> differing = differences(all, keys);
  if (!differing.empty()) {
    const auto named = std::span(differing).first(std::min(differing.size(), named_keys));
    std::vector<std::string> parts;
    for (const opinions& o : named) parts.push_back(text_of(o));
    error e =
        fail(errc::disagreement,
             fmt::format(
                 "ranks disagree on {} of {} {}: {}{}", differing.size(), keys, what, fmt::join(parts, "; "),
                 differing.size() > named.size() ? fmt::format("; and {} more", differing.size() - named.size()) : ""));
    e.key = named.front().key;
    e.ranks = dissenters(named);
    return std::move(e).with_values(group_text(named.front().groups[0]), group_text(named.front().groups[1]));
  }
  if (const auto disorder = first_disorder(all, position)) {
    error e = fail(errc::disagreement,
                   fmt::format("ranks list the same {} in different orders, first at position {}", what, position));
    e.key = disorder->groups.front().first;
    e.ranks = dissenters(std::span(&*disorder, 1));
    return std::move(e).with_values(group_text(disorder->groups[0]), group_text(disorder->groups[1]));
  }
  return fail(errc::disagreement,
              fmt::format("ranks disagree on their {}, although their descriptions are equal", what));
}

}  // namespace

digest128 digest_of(std::span<const agreement_record> records, bool ordered) {
  std::vector<digest128> each;
  for (const agreement_record& r : records) {
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    each.push_back(hash(fmt::format("{}:{}{}", r.key.size(), r.key, r.text)));
  }
  if (!ordered) std::sort(each.begin(), each.end());
  std::vector<std::int64_t> numbers;
  for (const digest128& d : each) {
    numbers.push_back(static_cast<std::int64_t>(d.low));
    numbers.push_back(static_cast<std::int64_t>(d.high));
  }
  return digest_of(numbers);
}

result<agreement_notes> agree(communicator_ref comm, const digest128& digest,
                              function_ref<std::vector<agreement_record>()> records, const agree_options& options,
                              const call_options& given) {
  const call_options call = given.named("agree");
  SHARDMESH_TRY(const auto said, comm.all_gather(encode(digest, options, call.name), call));
  agreement_notes notes;
  bool equal = true, problems = false;
  std::optional<digest128> first;
  rank_groups calls;
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    auto one = decode_ballot(said[rank]);
    if (!one)
      return fail(errc::disagreement,
                  fmt::format("a rank is in another call while the others compare {}", options.what))
          .with_rank(static_cast<std::int32_t>(rank));
    if (!first) first = one->digest;
    equal &= one->digest == *first;
    problems |= one->has_problem;
    add(calls, one->call, rank);
    notes.push_back(std::move(one->note));
  }
  if (calls.size() > 1) return different_calls(std::move(calls));
  if (problems) {
    SHARDMESH_TRY(
        const auto causes,
        comm.all_gather(options.problem != nullptr ? to_bytes(*options.problem) : std::vector<std::byte>(), call));
    for (std::size_t rank = 0; rank < causes.size(); ++rank) {
      if (causes[rank].empty()) continue;
      return detail::reported_by(
          error_from_bytes(causes[rank])
              .value_or(fail(errc::communication, "a rank cannot continue, and its reason cannot be read")),
          static_cast<std::int32_t>(rank));
    }
    return fail(errc::communication, "a rank cannot continue, and gives no reason");
  }
  if (equal) return notes;
  SHARDMESH_TRY(const auto described, comm.all_gather(encode(records()), call));
  std::vector<records_of_rank> all;
  for (std::size_t rank = 0; rank < described.size(); ++rank) {
    auto one = decode_records(described[rank]);
    if (!one)
      return fail(errc::disagreement, fmt::format("the description of a rank's {} cannot be read", options.what))
          .with_rank(static_cast<std::int32_t>(rank));
    all.push_back(*std::move(one));
  }
  return disagreement(all, options.what);
}

result<agreement_notes> agree(communicator_ref comm, std::span<const agreement_record> records,
                              const agree_options& options, const call_options& call) {
  return agree(
      comm, digest_of(records, options.ordered),
      [&] { return std::vector<agreement_record>(records.begin(), records.end()); }, options, call);
}

}  // namespace shardmesh
