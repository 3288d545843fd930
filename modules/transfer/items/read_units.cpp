// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/algorithm/sort.hpp>
#include <range/v3/algorithm/unique.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :read_units;

namespace shardmesh {
namespace {

constexpr std::int64_t large_unit_bytes = std::int64_t{64} << 20;   // of items that prefer large reads
constexpr std::int64_t least_alone_bytes = std::int64_t{64} << 10;  // size that is worth a separate read

box hull_of(const box& a, const box& b) {
  box all = a;
  for (std::size_t i = 0; i < all.rank(); ++i) {
    all.offsets[i] = std::min(a.offsets[i], b.offsets[i]);
    all.sizes[i] = std::max(a.end(i), b.end(i)) - all.offsets[i];
  }
  return all;
}

box hull(std::span<const read_demand> demands) {
  box all = demands.front().part;
  for (const read_demand& d : demands) all = hull_of(all, d.part);
  return all;
}

// The range of a part in its stored fragment, row-major: from its first element to one past its last.
struct stored_range {
  std::int64_t begin = 0, end = 0;
};

stored_range range_of(const read_demand& d) {
  const extents strides = contiguous_strides(d.from.where.sizes);
  stored_range range{0, 1};
  for (std::size_t i = 0; i < d.part.rank(); ++i) {
    const std::int64_t offset = d.part.offsets[i] - d.from.where.offsets[i];
    range.begin += offset * strides[i];
    range.end += (offset + d.part.sizes[i] - 1) * strides[i];
  }
  return range;
}

// Divides the demands on one fragment. Demands with overlapping ranges, such as columns, go together. Others are
// separate, so that nothing between them is read; but small ones that form one box go together.
std::vector<std::span<read_demand>> apart(std::span<read_demand> group) {
  if (group.size() == 1) return {group};
  const std::int64_t small = least_alone_bytes / item_bytes(group.front().target->to.type);
  std::sort(group.begin(), group.end(), [](const read_demand& a, const read_demand& b) {
    const stored_range x = range_of(a), y = range_of(b);
    return std::tie(x.begin, x.end, a.target) < std::tie(y.begin, y.end, b.target);
  });
  std::vector<std::span<read_demand>> made;
  std::size_t first = 0;
  stored_range all = range_of(group.front());
  box region = group.front().part;
  for (std::size_t i = 1; i < group.size(); ++i) {
    const stored_range next = range_of(group[i]);
    const box both = hull_of(region, group[i].part);
    const std::int64_t end = std::max(all.end, next.end);
    const bool is_small_box = end - all.begin <= small && both.volume() == end - all.begin;
    if (next.begin < all.end || (next.begin == all.end && is_small_box)) {
      all.end = end;
      region = both;
      continue;
    }
    made.push_back(group.subspan(first, i - first));
    first = i;
    all = next;
    region = group[i].part;
  }
  made.push_back(group.subspan(first));
  return made;
}

}  // namespace

result<work_list> read_planner::plan(std::span<const memory_target* const> targets) const {
  work_list made;
  made.demands.reserve(targets.size());
  for (const memory_target* const target : targets) SHARDMESH_TRY(add_demands(*target, made.demands));
  std::vector<read_demand>& demands = made.demands;
  const auto identity = [](const read_demand& d) { return std::tuple(d.target->transfer, d.from.owner, d.from.slot); };
  const auto before = [&](const read_demand& a, const read_demand& b) {
    return std::pair(identity(a), a.target) < std::pair(identity(b), b.target);
  };
  if (!std::is_sorted(demands.begin(), demands.end(), before)) std::sort(demands.begin(), demands.end(), before);
  made.units.reserve(demands.size());
  for (std::size_t begin = 0, end = 0; begin < demands.size(); begin = end) {
    while (end < demands.size() && identity(demands[end]) == identity(demands[begin])) ++end;
    add_units(std::span<read_demand>(demands.data() + begin, end - begin), made);
  }
  return made;
}

result<void> read_planner::add_demands(const memory_target& target, std::vector<read_demand>& demands) const {
  const auto known = static_cast<std::ptrdiff_t>(demands.size());
  from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
    return demands.push_back({f, &target, *intersect(f.where, target.where)}), true;
  });
  // Keeps one replica per distinct box: the first in owner order.
  if (const std::span<read_demand> found(demands.begin() + known, demands.end()); found.size() > 1) {
    ranges::sort(found, ranges::less{},
                 [](const read_demand& d) { return std::tie(d.from.where, d.from.owner, d.from.slot); });
    const auto kept =
        ranges::unique(found, ranges::equal_to{}, [](const read_demand& d) -> const box& { return d.from.where; });
    demands.erase(demands.begin() + known + (kept - found.begin()), demands.end());
  }
  // The volume alone would pass an overlap that is as large as a gap.
  const std::span<const read_demand> parts(demands.begin() + known, demands.end());
  const auto part_at = [&](std::size_t i) {
    return box_numbers{parts[i].part.offsets.data(), parts[i].part.sizes.data()};
  };
  std::int64_t held = 0;
  for (const read_demand& one : parts) held += one.part.volume();
  if (held == target.where.volume() && (parts.size() < 2 || tiles_a_box(target.where.rank(), parts.size(), part_at)))
    return {};
  return fail(errc::gap, "some cells of the box are not held exactly once")
      .with_key(keys_.empty() ? std::string() : keys_[target.transfer])
      .with_box(target.where);
}

// Adds the units of the demands on one stored fragment.
void read_planner::add_units(std::span<read_demand> group, work_list& made) const {
  const read_demand& first = group.front();
  const bool is_packed = bits(first.target->to.type) % 8 != 0;
  const bool in_order = !is_packed && source_.reads_in_order({first.from.owner, first.from.slot});
  if (is_packed || in_order) return made.units.push_back({group, &made.regions.emplace_back(hull(group)), in_order});
  const std::int64_t item = item_bytes(first.target->to.type);
  // Asked only where it matters: the answer opens the item.
  const bool is_large =
      hull(group).volume() > unit_bytes / item && source_.prefers_large_reads({first.from.owner, first.from.slot});
  const std::int64_t most = (is_large ? large_unit_bytes : unit_bytes) / item;
  if (group.size() == 1 && first.part.volume() <= most) return made.units.push_back({group, &first.part, false});
  for (const std::span<read_demand> part : apart(group)) {
    slab_walk walk(hull(part), most);
    while (const auto slab = walk.next())
      made.units.push_back({part, &made.regions.emplace_back(*slab), false, is_large});
  }
}

}  // namespace shardmesh
