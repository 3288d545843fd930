// SPDX-License-Identifier: Apache-2.0
// Files to tensors in memory. Reads are grouped by source item, so that each item is opened once and shared ranges are
// read once. Large tensors are cut into units for the threads; small ones go to a thread in bundles. A model of 20,000
// tensors is thus read in file order, and a tensor's metadata stays in the cache until its read.
module;
#include <fmt/format.h>
#include <range/v3/algorithm/sort.hpp>
#include <range/v3/algorithm/unique.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
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
constexpr std::int64_t large_unit_bytes = std::int64_t{64} << 20;   // of items that prefer large reads
constexpr std::int64_t scratch_bytes = std::int64_t{1} << 20;       // stays in the cache between read and scatter
constexpr std::int64_t least_alone_bytes = std::int64_t{64} << 10;  // size that is worth a separate read
constexpr std::int64_t bundle_bytes = std::int64_t{1} << 20;        // of small tensors in one bundle
constexpr std::int64_t read_cost_bytes = std::int64_t{4} << 10;     // fixed cost of a read, as bytes

// Reads into host or device memory; device memory through a staging buffer. One thread's transfer to the device
// overlaps another's read.
result<void> read_to(const any_item_source& source, item_id item, const box& part, const tensor_view& to) {
  if (to.where.type == device_type::cpu) return source.read(item, part, to);
  SHARDMESH_TRY(const auto backend, backend_for(to.where));
  SHARDMESH_TRY(const device_buffer memory, backend->allocate_staging((numel(to) * bits(to.type) + 7) / 8, to.where));
  const tensor_view staged{memory.data(), to.type, {}, to.sizes, contiguous_strides(to.sizes)};
  SHARDMESH_TRY(source.read(item, part, staged));
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
  const box* region = nullptr;
  bool in_order = false;  // one thread reads the item front to back
  bool is_large = false;  // the item prefers large reads
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

// Reads in slabs as large as a unit, so that an interrupted run does not wait for a whole large item.
result<void> read_in_order(const any_item_source& source, const unit& work, const item_run_options& options) {
  const demand& only = work.demands.front();
  slab_walk walk(*work.region, unit_bytes / item_bytes(only.target->to.type));
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(check_interruption(options));
    SHARDMESH_TRY(read_one(source, only, *slab));
  }
  return {};
}

// Memory for one piece of work at a time, reused by the next. Not thread-local, for the reason in `concurrent_runs`.
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
  // Columns of a transposed tensor, for example: short slabs of all of them would cost more than reading each.
  const std::int64_t all = work.region->volume();
  if (work.is_large && wanted_volume(work.demands, *work.region) <= all + all / 4) {
    for (const demand& d : work.demands) SHARDMESH_TRY(read_one(source, d, *work.region));
    return {};
  }
  slab_walk walk(*work.region, (work.is_large ? unit_bytes : scratch_bytes) / item_bytes(stored));
  std::vector<std::byte> scratch = spare.take();
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(check_interruption(options));
    const std::int64_t wanted = wanted_volume(work.demands, *slab);
    if (wanted == 0) continue;
    const std::int64_t volume = slab->volume();
    if (wanted < volume - volume / 8) {  // sparse: the source reads runs, or the covering range, for each
      for (const demand& d : work.demands) SHARDMESH_TRY(read_one(source, d, *slab));
      continue;
    }
    scratch.resize(static_cast<std::size_t>(volume * item_bytes(stored)));
    const tensor_view staged{scratch.data(), stored, {}, slab->sizes, contiguous_strides(slab->sizes)};
    const fragment& from = work.demands.front().from;
    const box local = shifted(relative_to(*slab, from.where), from.local_offsets);
    SHARDMESH_TRY(source.read({from.owner, from.slot}, local, staged));
    for (const demand& d : work.demands)
      if (const auto common = intersect(d.part, *slab))
        SHARDMESH_TRY(copy_between(subview(d.target->to, relative_to(*common, d.target->where)),
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

// The range of a part in its stored fragment, row-major: from its first element to one past its last.
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

// Divides the demands on one fragment. Demands with overlapping ranges, such as columns, go together. Others are
// separate, so that nothing between them is read; but small ones that form one box go together.
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

// The reads for some targets. Threads may take the units one by one.
struct work_list {
  std::vector<demand> demands;
  std::deque<box> regions;  // of units that are not a whole demand
  std::vector<unit> units;
};

using target_span = std::span<const memory_target* const>;

class memory_run {
 public:
  memory_run(std::span<const distribution> from, std::span<const std::string> keys, const any_item_source& source,
             const item_run_options& options)
      : from_(from), keys_(keys), source_(source), options_(options), spare_(thread_count(options.threads)) {}

  result<void> run(std::span<const memory_target> targets) {
    std::vector<const memory_target*> large, small;
    small.reserve(targets.size());
    for (const memory_target& target : targets) {
      SHARDMESH_TRY(check(target));
      if (!target.where.is_empty()) (is_small(target) ? small : large).push_back(&target);
    }
    open_items(large);
    SHARDMESH_TRY(const work_list cut, plan(large));
    const std::vector<target_span> bundles = bundles_of(small);
    const auto units = static_cast<std::int64_t>(cut.units.size());
    return parallel_for(options_.threads, units + static_cast<std::int64_t>(bundles.size()),
                        [&](std::int64_t i) -> result<void> {
                          if (i < units) return read(cut.units[static_cast<std::size_t>(i)]);
                          SHARDMESH_TRY(const work_list together, plan(bundles[static_cast<std::size_t>(i - units)]));
                          for (const unit& one : together.units) SHARDMESH_TRY(read(one));
                          return {};
                        });
  }

 private:
  std::string name_of(std::size_t transfer) const { return keys_.empty() ? std::string() : keys_[transfer]; }

  result<void> check(const memory_target& target) const {
    const extents& shape = from_[target.transfer].global_shape();
    if (target.where.sizes != target.to.sizes || target.where.rank() != shape.rank() ||
        !lies_within(target.where, box::whole(shape)))
      return fail(errc::shape_mismatch, "the sizes of the target are not those of the requested box")
          .with_key(name_of(target.transfer))
          .with_box(target.where)
          .with_values(to_string(target.where.sizes), to_string(target.to.sizes));
    if (auto held = check_reachable(target.to); !held)
      return std::move(held).error().with_key(name_of(target.transfer)).with_box(target.where);
    return {};
  }

  // Opens items on a server on all threads: `plan` would open one after another, each with requests.
  void open_items(target_span targets) const {
    if (targets.size() < 2 || !prefers_large_reads(*targets.front())) return;
    const auto done =
        parallel_for(options_.threads, static_cast<std::int64_t>(targets.size()), [&](std::int64_t i) -> result<void> {
          const memory_target& target = *targets[static_cast<std::size_t>(i)];
          from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
            static_cast<void>(source_.reads_in_order({f.owner, f.slot}));
            return true;
          });
          return {};
        });
    static_cast<void>(done);  // the read of an item that cannot be opened reports the error
  }

  // Asks the first item that holds a part of the target.
  bool prefers_large_reads(const memory_target& target) const {
    bool prefers = false;
    from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
      prefers = source_.prefers_large_reads({f.owner, f.slot});
      return false;
    });
    return prefers;
  }

  // Decides by the size of the whole tensor: a part of a large one may need decoding from the beginning, or share its
  // reads with other parts.
  bool is_small(const memory_target& target) const {
    return box::whole(from_[target.transfer].global_shape()).volume() <= bundle_bytes * 8 / bits(target.to.type);
  }

  // All targets of a tensor go into one bundle.
  static std::vector<target_span> bundles_of(std::vector<const memory_target*>& targets) {
    const auto by_transfer = [](const memory_target* a, const memory_target* b) { return a->transfer < b->transfer; };
    if (!std::is_sorted(targets.begin(), targets.end(), by_transfer))
      std::stable_sort(targets.begin(), targets.end(), by_transfer);
    std::vector<target_span> made;
    std::int64_t bytes = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      bytes += targets[i]->where.volume() * bits(targets[i]->to.type) / 8 + read_cost_bytes;
      const bool is_last = i + 1 == targets.size();
      if (!is_last && (bytes < bundle_bytes || targets[i]->transfer == targets[i + 1]->transfer)) continue;
      made.push_back(target_span(targets).subspan(first, i + 1 - first));
      first = i + 1;
      bytes = 0;
    }
    return made;
  }

  result<work_list> plan(target_span targets) const {
    work_list made;
    made.demands.reserve(targets.size());
    for (const memory_target* const target : targets) SHARDMESH_TRY(add_demands(*target, made.demands));
    std::vector<demand>& demands = made.demands;
    const auto identity = [](const demand& d) { return std::tuple(d.target->transfer, d.from.owner, d.from.slot); };
    const auto before = [&](const demand& a, const demand& b) {
      return std::pair(identity(a), a.target) < std::pair(identity(b), b.target);
    };
    if (!std::is_sorted(demands.begin(), demands.end(), before)) std::sort(demands.begin(), demands.end(), before);
    made.units.reserve(demands.size());
    for (std::size_t begin = 0, end = 0; begin < demands.size(); begin = end) {
      while (end < demands.size() && identity(demands[end]) == identity(demands[begin])) ++end;
      add_units(std::span<demand>(demands.data() + begin, end - begin), made);
    }
    return made;
  }

  result<void> add_demands(const memory_target& target, std::vector<demand>& demands) const {
    const auto known = static_cast<std::ptrdiff_t>(demands.size());
    from_[target.transfer].overlapping(target.where, [&](const fragment& f) {
      return demands.push_back({f, &target, *intersect(f.where, target.where)}), true;
    });
    // Keeps one replica per distinct box: the first in owner order.
    if (const std::span<demand> found(demands.begin() + known, demands.end()); found.size() > 1) {
      ranges::sort(found, ranges::less{},
                   [](const demand& d) { return std::tie(d.from.where, d.from.owner, d.from.slot); });
      const auto kept =
          ranges::unique(found, ranges::equal_to{}, [](const demand& d) -> const box& { return d.from.where; });
      demands.erase(demands.begin() + known + (kept - found.begin()), demands.end());
    }
    // The volume alone would pass an overlap that is as large as a gap.
    const std::span<const demand> parts(demands.begin() + known, demands.end());
    const auto part_at = [&](std::size_t i) {
      return box_numbers{parts[i].part.offsets.data(), parts[i].part.sizes.data()};
    };
    std::int64_t held = 0;
    for (const demand& one : parts) held += one.part.volume();
    if (held == target.where.volume() && (parts.size() < 2 || tiles_a_box(target.where.rank(), parts.size(), part_at)))
      return {};
    return fail(errc::gap, "some cells of the box are not held exactly once")
        .with_key(name_of(target.transfer))
        .with_box(target.where);
  }

  // Adds the units of the demands on one stored fragment.
  void add_units(std::span<demand> group, work_list& made) const {
    const demand& first = group.front();
    const bool is_packed = bits(first.target->to.type) % 8 != 0;
    const bool in_order = !is_packed && source_.reads_in_order({first.from.owner, first.from.slot});
    if (is_packed || in_order) return made.units.push_back({group, &made.regions.emplace_back(hull(group)), in_order});
    const std::int64_t item = item_bytes(first.target->to.type);
    // Calls `prefers_large_reads` only for large groups, because it opens the item.
    const bool is_large =
        hull(group).volume() > unit_bytes / item && source_.prefers_large_reads({first.from.owner, first.from.slot});
    const std::int64_t most = (is_large ? large_unit_bytes : unit_bytes) / item;
    if (group.size() == 1 && first.part.volume() <= most) return made.units.push_back({group, &first.part, false});
    for (const std::span<demand> part : apart(group)) {
      slab_walk walk(hull(part), most);
      while (const auto slab = walk.next())
        made.units.push_back({part, &made.regions.emplace_back(*slab), false, is_large});
    }
  }

  result<void> read(const unit& work) {
    const demand& first = work.demands.front();
    auto done = check_interruption(options_);
    if (done)
      done = work.demands.size() > 1 ? read_shared(source_, work, first.target->to.type, spare_, options_)
             : work.in_order         ? read_in_order(source_, work, options_)
                                     : read_one(source_, first, *work.region);
    if (done && options_.progress)
      options_.progress(wanted_volume(work.demands, *work.region) * item_bytes(first.target->to.type));
    if (done || !done.error().key.empty()) return done;
    return std::move(done).error().with_key(name_of(first.target->transfer));
  }

  std::span<const distribution> from_;
  std::span<const std::string> keys_;
  const any_item_source& source_;
  const item_run_options& options_;
  spare_buffers spare_;
};

}  // namespace

result<void> check_interruption(const item_run_options& options) {
  SHARDMESH_TRY(detail::check_current_call());  // its error names the call
  return detail::check_limits(options.call, "transfer");
}

result<void> run_to_memory(std::span<const distribution> from, std::span<const std::string> keys,
                           std::span<const memory_target> targets, any_item_source source,
                           const item_run_options& options) {
  return memory_run(from, keys, source, options).run(targets);
}

}  // namespace shardmesh
