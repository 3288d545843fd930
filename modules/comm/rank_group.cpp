// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh {

struct rank_group::numbering {
  std::vector<std::int32_t> globals;
  std::vector<std::pair<std::int32_t, std::int32_t>> by_global;  // (global rank, group rank), ascending
};

rank_group rank_group::world(std::int32_t size) {
  rank_group made;
  made.size_ = size;
  return made;
}

result<rank_group> rank_group::make(std::vector<std::int32_t> global_ranks) {
  if (global_ranks.empty()) return fail(errc::invalid_argument, "a group needs at least one rank");
  auto made = std::make_shared<numbering>();
  bool in_order = true;
  for (std::size_t i = 0; i < global_ranks.size(); ++i) {
    const std::int32_t rank = global_ranks[i];
    if (rank < 0) return fail(errc::invalid_argument, "a group has a negative rank: " + std::to_string(rank));
    in_order &= rank == static_cast<std::int32_t>(i);
    made->by_global.emplace_back(rank, static_cast<std::int32_t>(i));
  }
  std::sort(made->by_global.begin(), made->by_global.end());
  for (std::size_t i = 1; i < made->by_global.size(); ++i)
    if (made->by_global[i].first == made->by_global[i - 1].first)
      return fail(errc::invalid_argument, "a rank is in the group twice").with_rank(made->by_global[i].first);
  rank_group group = world(static_cast<std::int32_t>(global_ranks.size()));
  if (in_order) return group;
  made->globals = std::move(global_ranks);
  group.numbering_ = std::move(made);
  return group;
}

std::int32_t rank_group::global(std::int32_t group_rank) const {
  return numbering_ ? numbering_->globals[static_cast<std::size_t>(group_rank)] : group_rank;
}

std::optional<std::int32_t> rank_group::group_rank(std::int32_t global) const {
  if (!numbering_) return global >= 0 && global < size_ ? std::optional(global) : std::nullopt;
  const auto& sorted = numbering_->by_global;
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair(global, std::int32_t{0}));
  if (at == sorted.end() || at->first != global) return std::nullopt;
  return at->second;
}

std::vector<std::int32_t> rank_group::globals() const {
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < size_; ++i) all.push_back(global(i));
  return all;
}

bool operator==(const rank_group& a, const rank_group& b) {
  if (a.size_ != b.size_) return false;
  if (a.numbering_ == b.numbering_) return true;
  return a.numbering_ && b.numbering_ && a.numbering_->globals == b.numbering_->globals;
}

std::string to_string(const rank_group& group) {
  constexpr std::int32_t most = 16;
  std::string text = "[";
  for (std::int32_t i = 0; i < std::min(group.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(group.global(i));
  if (group.size() > most) text += ", ... " + std::to_string(group.size()) + " ranks";
  return text + "]";
}

}  // namespace shardmesh
