// SPDX-License-Identifier: Apache-2.0
// The bodies of engine.hpp, in a plain file that is compiled with Kokkos's flags.
#include "engine.hpp"

#include "device.hpp"
#include "host_tiles.hpp"

#include <shardmesh/kernels/cut_tiles.hpp>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

namespace shardmesh::kokkos_engine {
namespace {

using namespace kernel_bodies;
using host = Kokkos::DefaultHostExecutionSpace;

// Below this size, one thread is done before the others are awake.
constexpr std::int64_t least_shared_bytes = 96 << 10;
// The bytes that a thread takes at a time: enough for the prefetcher, and few enough that all threads end together.
constexpr std::int64_t least_share = 64 << 10, largest_share = 512 << 10;

std::int64_t bytes_of(const batch_item& item) {
  std::int64_t bytes = std::max(element_bytes(item.to_type), element_bytes(item.from_type));
  for (int d = 0; d < item.rank; ++d) bytes *= item.loops[d].size;
  return bytes;
}
std::int64_t bytes_of(const tile_item& item) {
  std::int64_t units = item.lines * item.column.size * item.row.size;
  return units * std::max(item.to_bytes, item.from_bytes);
}

// A run of neighbouring tiles for one thread.
struct share {
  std::int64_t first_tile = 0, first_item = 0, tiles = 0;
};
struct shared_phase {
  tiled_phase tiles;
  std::vector<share> shares;
  std::int64_t bytes = 0;
};

// The shares assigned to one thread, in a cache line of their own. The shares from `next` to `end` are left.
struct alignas(64) thread_part {
  std::atomic<std::int64_t> next{0};
  std::int64_t end = 0;

  // Takes a share and returns its number, or at least `end` when none is left. It reads before it writes, so that a
  // thread that finds nothing does not take the cache line from one that works on it.
  std::int64_t take() {
    return next.load(std::memory_order_relaxed) < end ? next.fetch_add(1, std::memory_order_relaxed) : end;
  }
};

const run_tiles_function run_tiles = best_run_tiles();

void run_share(const tiled_phase& phase, const share& mine, std::byte* const* to, const std::byte* const* from) {
  std::int64_t at = mine.first_item, tile = mine.first_tile;
  for (std::int64_t left = mine.tiles; left > 0; ++at) {
    const tile_item& item = phase.items[at];
    const std::int64_t begin = phase.first_tile[at], end = phase.first_tile[at + 1];
    std::byte* const target = to[item.to_slot] + item.to_offset;
    const std::byte* const source = reads(item.op) ? from[item.from_slot] + item.from_offset : target;
    if (item.op == batch_op::copy && target == source && item.to_type == item.from_type) {
      const std::int64_t skipped = std::min(end - tile, left);  // a copy onto itself
      tile += skipped, left -= skipped;
      continue;
    }
    const std::int64_t count = std::min(end - tile, left);
    run_tiles(&item, tile - begin, count, target, source);
    tile += count, left -= count;
  }
}

std::mutex& threads_in_use() {
  static std::mutex only;
  return only;
}

}  // namespace

class host_batch {
 public:
  tile_tables tables;
  std::vector<shared_phase> phases;
  // One per thread; written only while threads_in_use is held.
  mutable std::vector<thread_part> parts;
};

void host_batch_deleter::operator()(host_batch* batch) const noexcept {
  delete batch;
}

bool is_initialised() {
  return Kokkos::is_initialized();
}
bool is_finalised() {
  return Kokkos::is_finalized();
}

std::string initialise(int threads) {
  if (std::string problem = missing_device(); !problem.empty()) return problem;  // or Kokkos would end the process
  try {
    Kokkos::InitializationSettings settings;
    if (threads > 0) settings.set_num_threads(threads);
    settings.set_disable_warnings(true);  // a library must not write to the user's terminal
    Kokkos::initialize(settings);
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return {};
}

void finalise() {
  Kokkos::finalize();
}

const char* host_space() {
  return host::name();
}
int host_threads() {
  return host().concurrency();
}
int device_number() {
  return device_space() != nullptr ? Kokkos::device_id() : -1;
}

bool has_kernel(const batch_item& item) {
  return kernel_bodies::has_kernel(item);
}

host_batch_pointer prepare_on_host(const batch_item* items, std::size_t count) {
  host_batch_pointer made(new host_batch);
  const int threads = host_threads();
  std::int64_t all_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) all_bytes += bytes_of(items[i]);
  // Small batches get smaller tiles, so that there is work for every thread.
  tile_sizes sizes = host_tiles;
  sizes.bytes = std::clamp(all_bytes / (2 * threads), least_share, sizes.bytes);
  made->tables = cut_all(items, count, sizes);
  made->parts = std::vector<thread_part>(static_cast<std::size_t>(threads));
  for (std::size_t p = 0; p < made->tables.phase_count(); ++p) {
    shared_phase phase;
    phase.tiles = made->tables.phase(p);
    for (std::int64_t i = 0; i < phase.tiles.count; ++i) phase.bytes += bytes_of(phase.tiles.items[i]);
    const std::int64_t wanted = std::clamp(phase.bytes / (8 * threads), least_share, largest_share);
    std::int64_t held = 0;
    share next{phase.tiles.first_tile[0], 0, 0};
    for (std::int64_t i = 0; i < phase.tiles.count; ++i) {
      const tile_item& item = phase.tiles.items[i];
      const std::int64_t tile_bytes = bytes_of(item) / item.tiles();
      for (std::int64_t tile = phase.tiles.first_tile[i]; tile < phase.tiles.first_tile[i + 1]; ++tile) {
        ++next.tiles;
        held += tile_bytes;
        if (held < wanted) continue;
        phase.shares.push_back(next);
        const bool ends_item = tile + 1 == phase.tiles.first_tile[i + 1];
        next = {tile + 1, ends_item ? i + 1 : i, 0};
        held = 0;
      }
    }
    if (next.tiles > 0) phase.shares.push_back(next);
    made->phases.push_back(std::move(phase));
  }
  return made;
}

std::size_t items_of(const host_batch& batch) {
  return batch.tables.items.size();
}

void run_on_host(const host_batch& batch, std::byte* const* to, const std::byte* const* from) {
  for (const shared_phase& phase : batch.phases) {
    const auto count = static_cast<std::int64_t>(phase.shares.size());
    std::unique_lock<std::mutex> threads(threads_in_use(), std::defer_lock);
    if (count < 2 || phase.bytes < least_shared_bytes || !threads.try_lock()) {
      for (const share& mine : phase.shares) run_share(phase.tiles, mine, to, from);
      continue;
    }
    // Every thread begins with the same shares in every run, because its caches may still hold them. Then it takes the
    // shares of other threads, so that a descheduled thread does not delay the run.
    const auto parts = static_cast<std::int64_t>(batch.parts.size());
    thread_part* const part = batch.parts.data();
    for (std::int64_t i = 0; i < parts; ++i) {
      part[i].next.store(count * i / parts, std::memory_order_relaxed);
      part[i].end = count * (i + 1) / parts;
    }
    const host space;
    Kokkos::parallel_for("shardmesh_tiles", Kokkos::RangePolicy<host>(space, 0, parts), [&](std::int64_t mine) {
      for (std::int64_t p = 0; p < parts; ++p) {
        thread_part& now = part[(mine + p) % parts];
        for (std::int64_t i = now.take(); i < now.end; i = now.take())
          run_share(phase.tiles, phase.shares[static_cast<std::size_t>(i)], to, from);
      }
    });
    space.fence("shardmesh_tiles");
  }
}

}  // namespace shardmesh::kokkos_engine
