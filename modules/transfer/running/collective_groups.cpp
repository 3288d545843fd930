// SPDX-License-Identifier: Apache-2.0
// Finds groups from boxes alone. Candidates for one group are ranks that want the same box or, for reductions, hold the
// same box. If a mesh dimension repeats a block, its i-th holder belongs to the i-th group.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :collective_groups;

namespace shardmesh {
namespace {

struct rank_part {
  std::optional<fragment> held;
  fragment wanted;
};

// The part that each rank holds and wants. Returns nothing if a rank wants nothing or has several boxes.
std::optional<std::vector<rank_part>> parts_of(const tensor_transfer& t, std::int32_t ranks) {
  if (t.to.reduction() != reduce_op::none || t.to.terms() > 1 || t.to.owners() != ranks || t.from.owners() > ranks)
    return std::nullopt;
  std::vector<rank_part> parts;
  for (owner_id r = 0; r < ranks; ++r) {
    auto wanted = only_fragment(t.to, r);
    if (!wanted) return std::nullopt;
    bool holds = false;
    t.from.fragments_of(r, [&](const fragment& f) { return holds = !f.where.is_empty(), !holds; });
    auto held = only_fragment(t.from, r);
    if (holds != held.has_value()) return std::nullopt;
    parts.push_back({std::move(held), *std::move(wanted)});
  }
  return parts;
}

// The index of `part` among the even blocks of `whole` along its first dimension, and their number.
struct block {
  std::int64_t index = 0, count = 0;
};
std::optional<block> block_of(const box& part, const box& whole) {
  if (whole.rank() == 0) return std::nullopt;
  for (std::size_t d = 1; d < whole.rank(); ++d)
    if (part.offsets[d] != whole.offsets[d] || part.sizes[d] != whole.sizes[d]) return std::nullopt;
  const std::int64_t size = part.sizes[0], offset = part.offsets[0] - whole.offsets[0];
  if (whole.sizes[0] % size != 0 || offset < 0 || offset >= whole.sizes[0] || offset % size != 0) return std::nullopt;
  return block{offset / size, whole.sizes[0] / size};
}

// Groups ranks by a box that they share and by the place that each takes.
class grouping {
 public:
  explicit grouping(std::int32_t ranks) { made_.group_of.assign(static_cast<std::size_t>(ranks), -1); }

  void add(std::int32_t rank, const box& shared, std::int64_t place) { shared_[shared][place].push_back(rank); }

  // Succeeds if every box has the places 0 .. count - 1, each equally often. `ordered`: the places must also ascend
  // with the ranks of a group.
  std::optional<ranks_in_groups> finish(collective_kind kind, std::int64_t count, bool ordered) {
    if (count < 2) return std::nullopt;
    made_.kind = kind;
    made_.ranks = static_cast<std::int32_t>(count);
    std::vector<std::vector<std::int32_t>> groups;
    for (const auto& [shared, places] : shared_) {
      if (static_cast<std::int64_t>(places.size()) != count || places.rbegin()->first != count - 1) return std::nullopt;
      const std::size_t times = places.begin()->second.size();
      for (const auto& [place, ranks] : places)
        if (ranks.size() != times) return std::nullopt;
      for (std::size_t i = 0; i < times; ++i) {
        std::vector<std::int32_t>& members = groups.emplace_back();
        for (const auto& [place, ranks] : places) members.push_back(ranks[i]);
        if (ordered && !std::is_sorted(members.begin(), members.end())) return std::nullopt;
      }
    }
    std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
      return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
    });
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const std::int32_t rank : groups[g])
        made_.group_of[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(g);
    return std::move(made_);
  }

 private:
  std::map<box, std::map<std::int64_t, std::vector<std::int32_t>>> shared_;
  ranks_in_groups made_;
};

std::optional<ranks_in_groups> gathering(const std::vector<rank_part>& parts) {
  const auto ranks = static_cast<std::int32_t>(parts.size());
  grouping made(ranks);
  std::int64_t count = 0;
  for (std::int32_t r = 0; r < ranks; ++r) {
    const rank_part& p = parts[static_cast<std::size_t>(r)];
    const auto place = p.held ? block_of(p.held->where, p.wanted.where) : std::nullopt;
    if (!place || (count != 0 && place->count != count)) return std::nullopt;
    count = place->count;
    made.add(r, p.wanted.where, place->index);
  }
  return made.finish(collective_kind::all_gather, count, true);
}

// Broadcast: of the ranks that want a box, one holds it and the others hold nothing.
std::optional<ranks_in_groups> broadcasting(const std::vector<rank_part>& parts) {
  const auto ranks = static_cast<std::int32_t>(parts.size());
  std::map<box, std::vector<std::int32_t>> wanting;
  for (std::int32_t r = 0; r < ranks; ++r) {
    const rank_part& p = parts[static_cast<std::size_t>(r)];
    if (p.held && p.held->where != p.wanted.where) return std::nullopt;
    wanting[p.wanted.where].push_back(r);
  }
  grouping made(ranks);
  std::map<std::int32_t, std::int32_t> root_of;  // by a group's lowest rank, as groups are numbered
  const std::size_t count = wanting.begin()->second.size();
  for (const auto& [wanted, members] : wanting) {
    if (members.size() != count) return std::nullopt;
    for (std::size_t i = 0; i < members.size(); ++i) {
      made.add(members[i], wanted, static_cast<std::int64_t>(i));
      if (!parts[static_cast<std::size_t>(members[i])].held) continue;
      if (!root_of.emplace(members.front(), static_cast<std::int32_t>(i)).second) return std::nullopt;
    }
  }
  if (root_of.size() != wanting.size()) return std::nullopt;
  auto found = made.finish(collective_kind::broadcast, static_cast<std::int64_t>(count), true);
  if (found)
    for (const auto& [lowest, root] : root_of) found->root_of.push_back(root);
  return found;
}

// Reduction: each rank of a group holds a different term.
std::optional<ranks_in_groups> reducing(const std::vector<rank_part>& parts, std::int32_t terms) {
  const auto ranks = static_cast<std::int32_t>(parts.size());
  const bool scatters = parts[0].held && parts[0].held->where != parts[0].wanted.where;
  grouping made(ranks);
  for (std::int32_t r = 0; r < ranks; ++r) {
    const rank_part& p = parts[static_cast<std::size_t>(r)];
    if (!p.held || (p.held->where != p.wanted.where) != scatters) return std::nullopt;
    std::int64_t place = p.held->term;
    if (scatters) {
      const auto own = block_of(p.wanted.where, p.held->where);
      if (!own || own->count != terms) return std::nullopt;
      place = own->index;
    }
    made.add(r, p.held->where, place);
  }
  auto found = made.finish(scatters ? collective_kind::reduce_scatter : collective_kind::all_reduce, terms, scatters);
  if (!found) return std::nullopt;
  // Every group has every term once.
  std::vector<std::vector<bool>> met(parts.size() / static_cast<std::size_t>(terms),
                                     std::vector<bool>(static_cast<std::size_t>(terms)));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    auto seen = met[static_cast<std::size_t>(found->group_of[r])][static_cast<std::size_t>(parts[r].held->term)];
    if (seen) return std::nullopt;
    seen = true;
  }
  return found;
}

}  // namespace

std::optional<fragment> only_fragment(const distribution& d, owner_id rank) {
  std::optional<fragment> found;
  int count = 0;
  d.fragments_of(rank, [&](const fragment& f) {
    if (!f.where.is_empty()) found = f, ++count;
    return count < 2;
  });
  return count == 1 ? found : std::nullopt;
}

std::optional<ranks_in_groups> groups_of(const tensor_transfer& t, std::int32_t ranks) {
  const auto parts = parts_of(t, ranks);
  if (!parts) return std::nullopt;
  if (t.from.reduction() != reduce_op::none) {
    if (t.from.reduction() == reduce_op::avg && t.from.divisor() != 0 && t.from.divisor() != t.from.terms())
      return std::nullopt;
    return reducing(*parts, t.from.terms());
  }
  auto found = gathering(*parts);
  return found ? std::move(found) : broadcasting(*parts);
}

}  // namespace shardmesh
