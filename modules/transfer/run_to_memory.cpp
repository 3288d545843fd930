// SPDX-License-Identifier: Apache-2.0
// Files to tensors in memory: grouped by source item, so that each is opened once and shared ranges are read once.
module;
#include <fmt/format.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

namespace shardmesh {
namespace {

constexpr std::int64_t unit_bytes = std::int64_t{8} << 20;          // work that one thread takes at a time
constexpr std::int64_t scratch_bytes = std::int64_t{1} << 20;       // stays in the cache between read and scatter
constexpr std::int64_t least_alone_bytes = std::int64_t{64} << 10;  // what is worth a read of its own

// Memory of a device that is filled by way of the host's. Threads overlap: while one reads, another's bytes cross.
result<void> read_to(const any_item_source& source, item_id item, const box& part, const tensor_view& to) {
  if (to.where.type == device_type::cpu) return source.read(item, part, to);
  SHARDMESH_TRY(const auto backend, backend_for(to.where));
  SHARDMESH_TRY(const device_buffer memory, backend->allocate_staging((numel(to) * bits(to.type) + 7) / 8, to.where));
  const tensor_view staged{memory.data(), to.type, {}, to.sizes, contiguous_strides(to.sizes)};
  SHARDMESH_CHECK(source.read(item, part, staged));
  return copy_between(to, staged);
}

// A wanted part of one stored fragment.
struct demand {
  fragment from;
  const memory_target* target = nullptr;
  box part;  // of the global tensor
};

// Demands on one stored fragment, or on a slab of it.
struct unit {
  std::span<const demand> demands;
  box region;
  bool in_order = false;  // of an item that is read front to back, by one thread
};

std::int64_t wanted_volume(std::span<const demand> demands, const box& region) {
  std::int64_t volume = 0;
  for (const demand& d : demands)
    if (const auto common = intersect(d.part, region)) volume += common->volume();
  return volume;
}

result<void> read_one(const any_item_source& source, const demand& d, const box& region) {
  const auto common = intersect(d.part, region);
  if (!common) return {};
  const box local = shifted(relative_to(*common, d.from.where), d.from.local_offsets);
  return read_to(source, {d.from.owner, d.from.slot}, local,
                 subview(d.target->to, relative_to(*common, d.target->where)));
}

// As a thread takes units, so that somebody who waits for the end of the run does not wait for a whole large item.
result<void> read_in_order(const any_item_source& source, const unit& work, const item_run_options& options) {
  const demand& only = work.demands.front();
  slab_walk walk(work.region, unit_bytes / item_bytes(only.target->to.type));
  while (const auto slab = walk.next()) {
    SHARDMESH_CHECK(check_interruption(options));
    SHARDMESH_CHECK(read_one(source, only, *slab));
  }
  return {};
}

// Memory that one piece of work needs at a time, used again by the next. Not local to threads: see concurrent_runs.
class spare_buffers {
 public:
  explicit spare_buffers(int threads) { spare_.reserve(static_cast<std::size_t>(threads)); }

  std::vector<std::byte> take() {
    const std::lock_guard locked(lock_);
    if (spare_.empty()) return {};
    std::vector<std::byte> buffer = std::move(spare_.back());
    spare_.pop_back();
    return buffer;
  }
  void give_back(std::vector<std::byte> buffer) {
    const std::lock_guard locked(lock_);
    if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(buffer));
  }

 private:
  std::mutex lock_;
  std::vector<std::vector<std::byte>> spare_;
};

result<void> read_shared(const any_item_source& source, const unit& work, dtype stored, spare_buffers& spare,
                         const item_run_options& options) {
  slab_walk walk(work.region, scratch_bytes / item_bytes(stored));
  std::vector<std::byte> scratch = spare.take();
  while (const auto slab = walk.next()) {
    SHARDMESH_CHECK(check_interruption(options));
    const std::int64_t wanted = wanted_volume(work.demands, *slab);
    if (wanted == 0) continue;
    const std::int64_t volume = slab->volume();
    if (wanted < volume - volume / 8) {  // sparse: the source reads runs, or the covering range, for each
      for (const demand& d : work.demands) SHARDMESH_CHECK(read_one(source, d, *slab));
      continue;
    }
    scratch.resize(static_cast<std::size_t>(volume * item_bytes(stored)));
    const tensor_view staged{scratch.data(), stored, {}, slab->sizes, contiguous_strides(slab->sizes)};
    const fragment& from = work.demands.front().from;
    const box local = shifted(relative_to(*slab, from.where), from.local_offsets);
    SHARDMESH_CHECK(source.read({from.owner, from.slot}, local, staged));
    for (const demand& d : work.demands)
      if (const auto common = intersect(d.part, *slab))
        SHARDMESH_CHECK(copy_between(subview(d.target->to, relative_to(*common, d.target->where)),
                                     subview(staged, relative_to(*common, *slab))));
  }
  spare.give_back(std::move(scratch));
  return {};
}

box hull_of(const box& a, const box& b) {
  box all = a;
  for (std::size_t i = 0; i < all.rank(); ++i) {
    all.offsets[i] = std::min(a.offsets[i], b.offsets[i]);
    all.sizes[i] = std::max(a.end(i), b.end(i)) - all.offsets[i];
  }
  return all;
}

box hull(std::span<const demand> demands) {
  box all = demands.front().part;
  for (const demand& d : demands) all = hull_of(all, d.part);
  return all;
}

// Where a part lies in its stored fragment: from its first to behind its last element, row-major.
struct stored_range {
  std::int64_t begin = 0, end = 0;
};

stored_range range_of(const demand& d) {
  const extents strides = contiguous_strides(d.from.where.sizes);
  stored_range range{0, 1};
  for (std::size_t i = 0; i < d.part.rank(); ++i) {
    const std::int64_t offset = d.part.offsets[i] - d.from.where.offsets[i];
    range.begin += offset * strides[i];
    range.end += (offset + d.part.sizes[i] - 1) * strides[i];
  }
  return range;
}

// Demands on one fragment, in parts: those whose ranges overlap, as of columns, together. Others alone, so that nothing
// is read that lies between them; but small ones that are one box together.
std::vector<std::span<demand>> apart(std::span<demand> group) {
  if (group.size() == 1) return {group};
  const std::int64_t small = least_alone_bytes / item_bytes(group.front().target->to.type);
  std::sort(group.begin(), group.end(), [](const demand& a, const demand& b) {
    const stored_range x = range_of(a), y = range_of(b);
    return std::tie(x.begin, x.end, a.target) < std::tie(y.begin, y.end, b.target);
  });
  std::vector<std::span<demand>> made;
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

result<void> check_interruption(const item_run_options& options) {
  if (options.call.cancel.stop_requested()) return fail(errc::cancelled, "cancelled");
  if (options.call.deadline && std::chrono::steady_clock::now() >= *options.call.deadline)
    return fail(errc::deadline_exceeded, "the deadline has passed");
  return {};
}

result<void> run_to_memory(std::span<const distribution> from, std::span<const std::string> keys,
                           std::span<const memory_target> targets, any_item_source source,
                           const item_run_options& options) {
  const auto name_of = [&](std::size_t transfer) { return keys.empty() ? std::string() : keys[transfer]; };
  std::vector<demand> demands, found;
  demands.reserve(targets.size());
  for (const memory_target& target : targets) {
    if (target.where.sizes != target.to.sizes || target.where.rank() != from[target.transfer].global_shape().rank() ||
        !lies_within(target.where, box::whole(from[target.transfer].global_shape())))
      return fail(errc::shape_mismatch, "the target's sizes do not fit the box that is wanted")
          .with_key(name_of(target.transfer))
          .with_box(target.where)
          .with_values(to_string(target.where.sizes), to_string(target.to.sizes));
    if (auto held = check_reachable(target.to); !held)
      return std::move(held).error().with_key(name_of(target.transfer)).with_box(target.where);
    if (target.where.is_empty()) continue;
    found.clear();
    from[target.transfer].overlapping(target.where, [&](const fragment& f) {
      return found.push_back({f, &target, *intersect(f.where, target.where)}), true;
    });
    // Replicas: one per distinct box; the first in owner order serves.
    const auto box_first = [](const demand& d) { return std::tie(d.from.where, d.from.owner, d.from.slot); };
    const auto box_of = [](const demand& d) -> const box& { return d.from.where; };
    if (found.size() > 1)
      found |= ranges::actions::sort(ranges::less{}, box_first) | ranges::actions::unique(ranges::equal_to{}, box_of);
    if (wanted_volume(found, target.where) != target.where.volume())
      return fail(errc::gap, "the box is not held exactly once")
          .with_key(name_of(target.transfer))
          .with_box(target.where);
    demands.insert(demands.end(), found.begin(), found.end());
  }
  const auto identity = [](const demand& d) { return std::tuple(d.target->transfer, d.from.owner, d.from.slot); };
  const auto before = [&](const demand& a, const demand& b) {
    return std::pair(identity(a), a.target) < std::pair(identity(b), b.target);
  };
  if (!std::is_sorted(demands.begin(), demands.end(), before)) std::sort(demands.begin(), demands.end(), before);

  std::vector<unit> units;
  for (std::size_t begin = 0, end = 0; begin < demands.size(); begin = end) {
    while (end < demands.size() && identity(demands[end]) == identity(demands[begin])) ++end;
    const std::span<demand> group(demands.data() + begin, end - begin);
    const demand& first = group.front();
    const bool is_packed = bits(first.target->to.type) % 8 != 0;
    const bool in_order = !is_packed && source.reads_in_order({first.from.owner, first.from.slot});
    if (is_packed || in_order) {
      units.push_back({group, hull(group), in_order});
      continue;
    }
    const std::int64_t most = unit_bytes / item_bytes(first.target->to.type);
    for (const std::span<demand> part : apart(group)) {
      slab_walk walk(hull(part), most);
      while (const auto slab = walk.next()) units.push_back({part, *slab, false});
    }
  }
  spare_buffers spare(thread_count(options.threads));
  return parallel_for(options.threads, static_cast<std::int64_t>(units.size()), [&](std::int64_t i) -> result<void> {
    const unit& work = units[static_cast<std::size_t>(i)];
    const demand& first = work.demands.front();
    auto done = check_interruption(options);
    if (done)
      done = work.demands.size() > 1 ? read_shared(source, work, first.target->to.type, spare, options)
             : work.in_order         ? read_in_order(source, work, options)
                                     : read_one(source, first, work.region);
    if (done && options.progress)
      options.progress(wanted_volume(work.demands, work.region) * item_bytes(first.target->to.type));
    if (done || !done.error().key.empty()) return done;
    return std::move(done).error().with_key(name_of(first.target->transfer));
  });
}

}  // namespace shardmesh
