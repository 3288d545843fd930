// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.replicas;

import :copy_placement;
import :described_part;

namespace shardmesh {
namespace {

class placement_of_copies {
 public:
  placement_of_copies(const failure_domains& domains, std::size_t copies)
      : domains_(domains), copies_(copies), load_(domains.of_rank.size(), 0) {}

  box_keepers keepers_of(const merged_box& where, std::int64_t bytes) {
    box_keepers made;
    std::vector<bool> is_used(domains_.members.size(), false);
    while (made.ranks.size() < copies_) {
      const std::int32_t next = least_loaded(where, is_used);
      if (next < 0) break;
      add(made, next, is_used);
    }
    made.own_copies = made.ranks.size();
    const std::size_t first = domain_of(made.ranks.front());
    const std::size_t place = place_in_domain(made.ranks.front());
    for (std::size_t distance = 1; distance < domains_.members.size() && made.ranks.size() < copies_; ++distance) {
      const std::size_t domain = (first + distance) % domains_.members.size();
      const std::vector<std::int32_t>& members = domains_.members[domain];
      if (!is_used[domain]) add(made, members[place % members.size()], is_used);
    }
    for (const std::int32_t rank : made.ranks) {
      std::int64_t& load = load_[static_cast<std::size_t>(rank)];
      // The call checks the sum of a rank's bytes later; a load that is too high only ends the balance.
      load = checked_add(load, bytes).value_or(std::numeric_limits<std::int64_t>::max());
    }
    return made;
  }

 private:
  std::size_t domain_of(std::int32_t rank) const { return domains_.of_rank[static_cast<std::size_t>(rank)]; }

  std::size_t place_in_domain(std::int32_t rank) const {
    const std::vector<std::int32_t>& members = domains_.members[domain_of(rank)];
    return static_cast<std::size_t>(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
  }

  // The holder with the least to keep in a domain that is not used; the lowest one among equals; -1 if there is none.
  std::int32_t least_loaded(const merged_box& where, const std::vector<bool>& is_used) const {
    std::int32_t best = -1;
    for (const part_holder& holder : where.holders) {
      if (is_used[domain_of(holder.rank)]) continue;
      if (best < 0 || load_[static_cast<std::size_t>(holder.rank)] < load_[static_cast<std::size_t>(best)])
        best = holder.rank;
    }
    return best;
  }

  void add(box_keepers& made, std::int32_t rank, std::vector<bool>& is_used) const {
    is_used[domain_of(rank)] = true;
    made.ranks.push_back(rank);
  }

  const failure_domains& domains_;
  std::size_t copies_;
  std::vector<std::int64_t> load_;  // bytes that each rank keeps so far
};

}  // namespace

result<failure_domains> number_domains(std::span<const std::string> names, std::int32_t copies) {
  failure_domains made;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(names[rank], made.members.size());
    if (is_new) made.members.emplace_back();
    made.of_rank.push_back(found->second);
    made.members[found->second].push_back(static_cast<std::int32_t>(rank));
  }
  if (made.members.size() >= static_cast<std::size_t>(copies)) return made;
  return fail(errc::invalid_argument, "the ranks are in fewer failure domains than there are copies")
      .with_values(detail::counted(copies, "failure domain") + " or more",
                   fmt::format("{} of {}", made.members.size(), detail::counted(names.size(), "rank")))
      .with_hint("lower replicas_options::copies, or set failure_domain");
}

std::vector<box_keepers> place_copies(const merged_parts& all, const failure_domains& domains, std::int32_t copies) {
  placement_of_copies placement(domains, static_cast<std::size_t>(copies));
  std::vector<box_keepers> made;
  for (const merged_entry& entry : all.entries)
    for (const merged_box& where : entry.boxes)
      made.push_back(
          placement.keepers_of(where, part_bytes(entry.head.shape, entry.head.type, where.where).value_or(0)));
  return made;
}

}  // namespace shardmesh
