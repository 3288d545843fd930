// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :read_units;
import :unit_read;

namespace shardmesh {
namespace {

constexpr std::int64_t scratch_bytes = std::int64_t{1} << 20;  // stays in the cache between read and scatter

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

std::int64_t wanted_volume(std::span<const read_demand> demands, const box& region) {
  std::int64_t volume = 0;
  for (const read_demand& d : demands)
    if (const auto common = intersect(d.part, region)) volume += common->volume();
  return volume;
}

result<void> read_one(const any_item_source& source, const read_demand& d, const box& region) {
  const auto common = intersect(d.part, region);
  if (!common) return {};
  const box local = shifted(relative_to(*common, d.from.where), d.from.local_offsets);
  return read_to(source, {d.from.owner, d.from.slot}, local,
                 subview(d.target->to, relative_to(*common, d.target->where)));
}

// Reads in slabs as large as a unit, so that an interrupted run does not wait for a whole large item.
result<void> read_in_order(const any_item_source& source, const read_unit& work, const item_run_options& options) {
  const read_demand& only = work.demands.front();
  slab_walk walk(*work.region, unit_bytes / item_bytes(only.target->to.type));
  while (const auto slab = walk.next()) {
    SHARDMESH_TRY(check_interruption(options));
    SHARDMESH_TRY(read_one(source, only, *slab));
  }
  return {};
}

result<void> read_shared(const any_item_source& source, const read_unit& work, dtype stored, spare_buffers& spare,
                         const item_run_options& options) {
  // Columns of a transposed tensor, for example: short slabs of all of them would cost more than reading each.
  const std::int64_t all = work.region->volume();
  if (work.is_large && wanted_volume(work.demands, *work.region) <= all + all / 4) {
    for (const read_demand& d : work.demands) SHARDMESH_TRY(read_one(source, d, *work.region));
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
      for (const read_demand& d : work.demands) SHARDMESH_TRY(read_one(source, d, *slab));
      continue;
    }
    scratch.resize(static_cast<std::size_t>(volume * item_bytes(stored)));
    const tensor_view staged{scratch.data(), stored, {}, slab->sizes, contiguous_strides(slab->sizes)};
    const fragment& from = work.demands.front().from;
    const box local = shifted(relative_to(*slab, from.where), from.local_offsets);
    SHARDMESH_TRY(source.read({from.owner, from.slot}, local, staged));
    for (const read_demand& d : work.demands)
      if (const auto common = intersect(d.part, *slab))
        SHARDMESH_TRY(copy_between(subview(d.target->to, relative_to(*common, d.target->where)),
                                   subview(staged, relative_to(*common, *slab))));
  }
  spare.give_back(std::move(scratch));
  return {};
}

}  // namespace

spare_buffers::spare_buffers(int threads) {
  spare_.reserve(static_cast<std::size_t>(threads));
}

std::vector<std::byte> spare_buffers::take() {
  const std::lock_guard locked(lock_);
  if (spare_.empty()) return {};
  std::vector<std::byte> buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void spare_buffers::give_back(std::vector<std::byte> buffer) {
  const std::lock_guard locked(lock_);
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(buffer));
}

result<void> read_to_memory(const any_item_source& source, const read_unit& work, spare_buffers& spare,
                            const item_run_options& options) {
  const read_demand& first = work.demands.front();
  auto done = check_interruption(options);
  if (done)
    done = work.demands.size() > 1 ? read_shared(source, work, first.target->to.type, spare, options)
           : work.in_order         ? read_in_order(source, work, options)
                                   : read_one(source, first, *work.region);
  if (done && options.progress)
    options.progress(wanted_volume(work.demands, *work.region) * item_bytes(first.target->to.type));
  return done;
}

}  // namespace shardmesh
