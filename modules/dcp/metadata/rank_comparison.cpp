// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :held_entries;
import :rank_comparison;

namespace shardmesh::dcp {

std::optional<error> rank_comparison::conflict_in(const holders& all) {
  for (const held_entry& entry : all)
    if (!are_described_alike(all.front(), entry))
      return conflict(all, "saved different entries under this key")
          .with_values(description_of(all.front()), description_of(entry));
  if (all.front().object) {
    for (const held_entry& entry : all)
      if (!hold_the_same(all.front(), all.front().object->place, entry, entry.object->place))
        return conflict(all, different_values);
    return std::nullopt;
  }
  std::map<box, held_chunk> first_of;
  std::optional<box> disputed;
  for (const held_entry& entry : all)
    for_each_chunk(entry, [&](const held_chunk& chunk) {
      if (disputed) return;
      const auto [first, added] = first_of.try_emplace(chunk.where(), chunk);
      const held_chunk& other = first->second;
      if (!added && !hold_the_same(*other.holder, other.place(), entry, chunk.place())) disputed = first->first;
    });
  if (disputed) return conflict(all, different_values).with_box(*disputed);
  return std::nullopt;
}

error rank_comparison::conflict(const holders& all, std::string_view what) {
  error made = fail(errc::disagreement, fmt::format("the ranks {}", what))
                   .with_key(all.front().object ? all.front().object->key : all.front().tensor->key)
                   .with_hint(
                       "read it as one of these ranks (--rank N, rank=N), or list it as KEY@RANK of each rank"
                       " (--keys-at-ranks, keys_at_ranks=True)");
  for (const held_entry& entry : all) made.ranks.push_back(static_cast<std::int32_t>(entry.rank));
  return made;
}

bool rank_comparison::hold_the_same(const held_entry& a, const stored_range& at, const held_entry& b,
                                    const stored_range& other) {
  if (&a == &b || at.file < 0 || other.file < 0 || !rules_.are_equal) return true;
  if (a.from->transforms[static_cast<std::size_t>(at.transform)] !=
      b.from->transforms[static_cast<std::size_t>(other.transform)])
    return false;
  auto same = rules_.are_equal(a.from->files[static_cast<std::size_t>(at.file)], at,
                               b.from->files[static_cast<std::size_t>(other.file)], other);
  if (same) return *same;
  error problem = std::move(same).error();
  problem.key = b.object ? b.object->key : b.tensor->key;
  if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(std::move(problem));
  return true;
}

}  // namespace shardmesh::dcp
