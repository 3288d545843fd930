// SPDX-License-Identifier: Apache-2.0
// The entries of several ranks as one rank sees them.
module;
#include <fmt/format.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :catalog_merge;
import :held_entries;
import :rank_comparison;

namespace shardmesh::dcp {
namespace {

// Names a few of the keys: "a, b, c and 4 more".
std::string key_list(std::span<const std::string> keys) {
  constexpr std::size_t most = 3;
  std::string named;
  for (const std::string& key : keys.first(std::min(keys.size(), most)))
    named += (named.empty() ? "" : ", ") + escaped(key);
  return keys.size() > most ? fmt::format("{} and {} more", named, keys.size() - most) : named;
}

bool meets(const distribution& held, const box& where) {
  if (where.is_empty()) return false;
  bool met = false;
  held.overlapping(where, [&](const fragment&) {
    met = true;
    return false;
  });
  return met;
}

}  // namespace

// Adds the value of one rank; for a tensor, also the boxes that only other ranks have. If other ranks have different
// values of such a box, it becomes a chunk that cannot be read. `key`: the rank's own, or KEY@RANK.
void catalog_merge::add_seen_by(const holders& all, const held_entry& own, const std::string& key) {
  if (own.object) return add_object(own, key);
  begin_tensor(*own.tensor, key);
  std::set<box> boxes;
  for_each_chunk(own, [&](const held_chunk& chunk) {
    const box where = chunk.where();
    if (boxes.insert(where).second) merged.add_chunk(where, renumber(*own.from, chunk.place()));
  });
  const auto held = own.from->distribution_of(*own.tensor);
  std::map<box, held_chunk> first_of;
  std::set<box> disputed;
  std::vector<box> others;  // in the order of the ranks
  std::int64_t overlapping = 0;
  for (const held_entry& other : all) {
    if (&other == &own || !are_described_alike(own, other)) continue;
    for_each_chunk(other, [&](const held_chunk& chunk) {
      const box where = chunk.where();
      if (boxes.contains(where)) return;
      if (held && meets(*held, where)) return void(++overlapping);
      const auto [first, added] = first_of.try_emplace(where, chunk);
      if (added)
        others.push_back(where);
      else if (!comparison_.hold_the_same(*first->second.holder, first->second.place(), other, chunk.place()))
        disputed.insert(where);
    });
  }
  for (const box& where : others) {
    const held_chunk& first = first_of.at(where);
    merged.add_chunk(where, disputed.contains(where) ? stored_range() : renumber(*first.holder->from, first.place()));
  }
  if (overlapping > 0 && rules_.preferred) {  // otherwise, they are entries of their own
    overlapping_chunks_ += overlapping;
    overlapping_keys_.push_back(key);
  }
  if (disputed.empty()) return;
  error made = rank_comparison::conflict(all, different_values)
                   .with_box(*disputed.begin())
                   .with_hint(rules_.keys_at_ranks ? "use the KEY@RANK of a rank that saved this box, or read the "
                                                     "checkpoint as that rank (--rank N, rank=N)"
                                                   : "read it as a rank that saved this box (--rank N, rank=N)");
  made.key = key;
  warnings.push_back(made);
  conflicts.emplace(key, std::move(made));
}

std::vector<std::string> catalog_merge::notes() const {
  std::vector<std::string> made;
  if (!excluded_keys_.empty())
    made.push_back(fmt::format("left out {} of other ranks in lists and values that rank {} saved itself: {}",
                               detail::counted(excluded_keys_.size(), "entry", "entries"), *rules_.preferred,
                               key_list(excluded_keys_)));
  if (!overlapping_keys_.empty())
    made.push_back(fmt::format("left out {} of other ranks that overlap{} chunks of rank {}: {}",
                               detail::counted(overlapping_chunks_, "chunk"), overlapping_chunks_ == 1 ? "s" : "",
                               *rules_.preferred, key_list(overlapping_keys_)));
  return made;
}

}  // namespace shardmesh::dcp
