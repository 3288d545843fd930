// SPDX-License-Identifier: Apache-2.0
// Random arguments of an agreement, for every rank: equal on most ranks, with random differences. It uses no shardmesh
// type, so that it can be included before imports.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

struct random_ballot {
  const char* call = "save";
  std::vector<std::pair<std::string, std::string>> records;  // keys and texts
  bool has_problem = false;
  bool combines_otherwise = false;  // whether the rank differs from `random_ballots::combines`
  std::vector<std::byte> note;
};

/// Combines notes: the bytes of both, sorted.
inline void combine_sorted(std::vector<std::byte>& all, std::span<const std::byte> one) {
  all.insert(all.end(), one.begin(), one.end());
  std::sort(all.begin(), all.end());
}

/// Whether the order of the records counts, whether notes are combined, and the arguments of each rank.
struct random_ballots {
  bool ordered = false;
  bool combines = false;
  std::vector<random_ballot> of_rank;

  random_ballots(dice& die, std::int32_t ranks)
      : ordered(die.one_in(2)), combines(die.one_in(3)), of_rank(static_cast<std::size_t>(ranks)) {
    std::vector<std::pair<std::string, std::string>> records;
    for (std::int64_t i = die.below(15); i > 0; --i)
      records.emplace_back("key" + std::to_string(die.below(12)), "text" + std::to_string(die.below(3)));
    for (random_ballot& one : of_rank) one.records = records;
    if (die.one_in(2)) of_rank.front().note.resize(static_cast<std::size_t>(die.below(300)), std::byte{7});
    // Each kind of difference occurs alone, with others, and not at all.
    if (die.one_in(3))
      change(die,
             [&](random_ballot& one) { one.note.resize(1 + die.one_of(20), static_cast<std::byte>(die.below(256))); });
    if (die.one_in(4)) change(die, [&](random_ballot& one) { one.has_problem = true; });
    if (die.one_in(6)) change(die, [&](random_ballot& one) { one.combines_otherwise = true; });
    if (die.one_in(5)) change(die, [&](random_ballot& one) { one.call = die.one_in(2) ? "load" : "flatten"; });
    if (die.one_in(2)) change(die, [&](random_ballot& one) { change_records(die, one); });
  }

 private:
  template <class Change>
  void change(dice& die, const Change& by) {
    const bool is_rare = die.one_in(2);
    for (std::int64_t n = is_rare ? 1 : 1 + die.below(std::ssize(of_rank)); n > 0; --n)
      by(of_rank[die.one_of(of_rank.size())]);
  }

  static void change_records(dice& die, random_ballot& one) {
    auto& records = one.records;
    if (records.empty() || die.one_in(4)) {
      records.emplace_back("added", "text");
      return;
    }
    const auto at = records.begin() + static_cast<std::ptrdiff_t>(die.one_of(records.size()));
    if (die.one_in(3)) {
      records.erase(at);
    } else if (die.one_in(2)) {
      at->second += "'";
    } else {
      std::rotate(records.begin(), at, records.end());
    }
  }
};
