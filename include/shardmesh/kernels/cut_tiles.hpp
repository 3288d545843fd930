// SPDX-License-Identifier: Apache-2.0
// Cuts batches into tiles: on the host, once per plan. C++17.
#pragma once
#include <shardmesh/kernels/arithmetic.hpp>
#include <shardmesh/kernels/tiled_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace shardmesh::kernel_bodies {

/// Sizes of tiles. A host thread takes many bytes at a time, so that the prefetcher takes effect. A device has hundreds
/// of teams to keep busy, and scratch memory for a limited number of lines.
struct tile_sizes {
  std::int64_t bytes = 256 << 10;
  /// The most rows of a transpose's tile; `from` is dense along rows. A host reads each column of a tile as a stream,
  /// so columns should be long.
  std::int64_t plane_rows = 1024;
  /// The fewest columns of a transpose's tile.
  std::int64_t plane_columns = 64;
  std::int64_t most_lines = std::int64_t{1} << 40;
  /// The largest cell, in bytes, that a transpose moves in squares. On a device, scratch memory limits it.
  std::int64_t largest_cell = 512;
  /// A phase that writes more bytes bypasses a host's cache, which could not keep all of them.
  std::int64_t streamed_bytes = 32 << 20;
};
inline constexpr std::int64_t device_lines = 512;
inline constexpr tile_sizes host_tiles{256 << 10, 1024, 64, std::int64_t{1} << 40, 512, 32 << 20};
inline constexpr tile_sizes device_tiles{32 << 10, 64, 64, device_lines, 16, std::int64_t{1} << 62};

/// Returns whether there is a kernel for this item.
inline bool has_kernel(const batch_item& item) {
  const bool computes = item.op != batch_op::copy;
  if (item.rank > batch_max_loops || element_bytes(item.to_type) == 0) return false;
  if (!computes && item.to_type == item.from_type) return true;
  if (lane_of(item.to_type) == lane::none) return false;
  return !reads(item.op) || lane_of(item.from_type) != lane::none;
}

// The loop along which `from` is densest; -1 if that is the last loop anyway, or `from` repeats along it.
inline int densest_from(const batch_item& item, int rank) {
  if (rank < 2) return -1;
  const auto step = [&](int d) { return item.loops[d].from < 0 ? -item.loops[d].from : item.loops[d].from; };
  int found = 0;
  for (int d = 1; d < rank; ++d)
    if (step(d) < step(found)) found = d;
  return found == rank - 1 || step(found) == 0 || step(found) >= step(rank - 1) ? -1 : found;
}

/// Cuts one item. Precondition: has_kernel(item).
inline tile_item cut(const batch_item& item, const tile_sizes& sizes) {
  tile_item made;
  made.op = item.op;
  made.reduction = item.reduction;
  made.to_type = item.to_type;
  made.from_type = item.from_type;
  made.to_lane = lane_of(item.to_type);
  made.to_slot = item.to_slot;
  made.to_offset = item.to_offset;
  made.factor = item.factor;
  made.to_bytes = made.from_bytes = element_bytes(item.to_type);
  if (reads(item.op)) {
    made.from_slot = item.from_slot;
    made.from_offset = item.from_offset;
    made.from_lane = lane_of(item.from_type);
    made.from_bytes = element_bytes(item.from_type);
  }

  int rank = item.rank;
  const bool moves = item.op == batch_op::copy && item.to_type == item.from_type;
  if (moves && rank > 0 && item.loops[rank - 1].to == made.to_bytes && item.loops[rank - 1].from == made.to_bytes)
    made.to_bytes = made.from_bytes = made.to_bytes * item.loops[--rank].size;
  const int densest = reads(item.op) && (!moves || made.to_bytes <= sizes.largest_cell) ? densest_from(item, rank) : -1;
  int kept = rank;
  if (moves && densest < 0) {
    made.kind = tile_kind::runs;
    made.column = {made.to_bytes, 1, 1};
    made.to_bytes = made.from_bytes = 1;
  } else {
    made.kind = moves ? tile_kind::planes : densest < 0 ? tile_kind::elements : tile_kind::element_planes;
    made.column = rank > 0 ? item.loops[--kept] : batch_loop{1, made.to_bytes, made.from_bytes};
    if (densest >= 0) made.row = item.loops[densest];
  }
  for (int d = 0; d < kept; ++d) {
    if (d == densest) continue;
    made.loops[made.rank++] = item.loops[d];
    made.lines *= item.loops[d].size;
  }
  if (made.kind == tile_kind::runs) made.stride_bits = made.column.size;
  if (made.kind == tile_kind::planes)
    made.stride_bits = made.column.to | made.column.from | made.row.to | made.row.from;
  for (int d = 0; d < made.rank; ++d) made.stride_bits |= made.loops[d].to | made.loops[d].from;

  const std::int64_t unit = std::max(made.to_bytes, made.from_bytes);
  const std::int64_t units = std::max<std::int64_t>(sizes.bytes / unit, 1);
  if (densest >= 0) {
    made.rows_per_tile = std::min(made.row.size, sizes.plane_rows);
    made.columns_per_tile = std::min(made.column.size, std::max(sizes.plane_columns, units / made.rows_per_tile));
  } else {
    made.columns_per_tile = std::min(made.column.size, units);
  }
  made.column_tiles = (made.column.size + made.columns_per_tile - 1) / made.columns_per_tile;
  made.row_tiles = (made.row.size + made.rows_per_tile - 1) / made.rows_per_tile;
  if (made.column_tiles == 1 && made.row_tiles == 1)
    made.lines_per_tile = std::max<std::int64_t>(
        1, std::min({made.lines, sizes.most_lines, units / (made.columns_per_tile * made.rows_per_tile)}));

  if (item.op == batch_op::fill) {
    write_identity(item.to_type, item.reduction, made.pattern);
    for (std::int64_t done = made.to_bytes; done < 16; done *= 2)
      std::memcpy(made.pattern + done, made.pattern, static_cast<std::size_t>(done));
  }
  return made;
}

/// The items of a batch in phase order, cut into tiles.
struct tile_tables {
  std::vector<tile_item> items;
  std::vector<std::int64_t> first_tile;  // one more entry than items
  std::vector<std::size_t> phases;       // first item of each phase, then the number of items

  tiled_phase phase(std::size_t p) const {
    return {items.data() + phases[p], first_tile.data() + phases[p],
            static_cast<std::int64_t>(phases[p + 1] - phases[p])};
  }
  std::size_t phase_count() const { return phases.empty() ? 0 : phases.size() - 1; }
};
/// Cuts all items of a batch. Precondition: `has_kernel` is true for each.
inline tile_tables cut_all(const batch_item* items, std::size_t count, const tile_sizes& sizes) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return items[a].phase != items[b].phase ? items[a].phase < items[b].phase : a < b;
  });
  tile_tables made;
  made.items.reserve(count);
  made.first_tile.reserve(count + 1);
  made.first_tile.push_back(0);
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0 || items[order[i]].phase != items[order[i - 1]].phase) made.phases.push_back(i);
    made.items.push_back(cut(items[order[i]], sizes));
    made.first_tile.push_back(made.first_tile.back() + made.items.back().tiles());
  }
  if (count > 0) made.phases.push_back(count);
  for (std::size_t p = 0; p < made.phase_count(); ++p) {
    tile_item* const begin = made.items.data() + made.phases[p];
    tile_item* const end = made.items.data() + made.phases[p + 1];
    std::int64_t written = 0;
    for (const tile_item* item = begin; item != end; ++item)
      written += item->lines * item->column.size * item->row.size * item->to_bytes;
    for (tile_item* item = begin; item != end; ++item) item->streams = written > sizes.streamed_bytes;
  }
  return made;
}

}  // namespace shardmesh::kernel_bodies
