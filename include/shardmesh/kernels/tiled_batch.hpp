// SPDX-License-Identifier: Apache-2.0
// Batches in the form that kernels read: every item is cut into tiles of about equal work. A launch over all tiles of a
// phase is thus balanced, whatever the sizes of its items. Plain numbers, for any memory. cut_tiles.hpp cuts items;
// host_tile.hpp and device_tile.hpp run tiles.
#pragma once
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/kernels/elements.hpp>

#include <cstddef>
#include <cstdint>

namespace shardmesh::kernel_bodies {

enum class tile_kind : std::uint8_t {
  runs,            // bytes that are contiguous on both sides, repeated over the loops
  planes,          // small runs, dense along one loop in `to` and along another in `from`: a transpose
  elements,        // converted or computed, along one loop
  element_planes,  // the same for a transpose
};

/// Returns whether an operation reads `from`.
SHARDMESH_KERNEL_FUNCTION constexpr bool reads(batch_op op) {
  return op == batch_op::copy || op == batch_op::accumulate;
}

/// An item as lines of columns. For a transpose, each line is a plane of rows and columns. A tile is some columns of
/// some rows of one line, or all columns and rows of several lines.
struct tile_item {
  batch_op op = batch_op::copy;
  reduce_op reduction = reduce_op::none;
  dtype to_type = dtype::undefined, from_type = dtype::undefined;
  lane to_lane = lane::none, from_lane = lane::none;
  tile_kind kind = tile_kind::runs;
  bool streams = false;   // a host writes past its cache, because the phase exceeds it
  std::uint8_t rank = 0;  // loops over lines
  std::uint32_t to_slot = 0, from_slot = 0;
  std::int64_t to_offset = 0, from_offset = 0;
  std::int64_t to_bytes = 0, from_bytes = 0;  // of a unit: an element; a byte of a run; a small run of a plane
  batch_loop column, row;
  std::int64_t lines = 1;
  std::int64_t columns_per_tile = 1, rows_per_tile = 1, lines_per_tile = 1;
  std::int64_t column_tiles = 1, row_tiles = 1;
  std::int64_t stride_bits = 0;  // bitwise OR of all strides and run lengths: gives the common alignment
  double factor = 1;
  alignas(16) std::byte pattern[16]{};  // of fill: 16 bytes of the identity
  batch_loop loops[batch_max_loops]{};  // outermost first

  SHARDMESH_KERNEL_FUNCTION std::int64_t tiles() const {
    return column_tiles * row_tiles * ((lines + lines_per_tile - 1) / lines_per_tile);
  }
};

/// One phase: its items, and the number of tiles before each item, with one entry more than items.
struct tiled_phase {
  const tile_item* items = nullptr;
  const std::int64_t* first_tile = nullptr;
  std::int64_t count = 0;

  SHARDMESH_KERNEL_FUNCTION std::int64_t tiles() const { return first_tile[count] - first_tile[0]; }
  /// The item of a tile, which is counted from 0 in the phase. O(log items).
  SHARDMESH_KERNEL_FUNCTION std::int64_t item_of(std::int64_t tile) const {
    const std::int64_t wanted = tile + first_tile[0];
    std::int64_t low = 0, high = count;  // first_tile[low] <= wanted < first_tile[high]
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      if (first_tile[middle] <= wanted)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

/// The part of an item that one tile covers.
struct tile_part {
  std::int64_t first_line = 0, lines = 0, first_row = 0, rows = 0, first_column = 0, columns = 0;
};
SHARDMESH_KERNEL_FUNCTION inline std::int64_t at_most(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
SHARDMESH_KERNEL_FUNCTION inline tile_part part_of(const tile_item& item, std::int64_t tile) {
  tile_part part;
  part.first_column = tile % item.column_tiles * item.columns_per_tile;
  tile /= item.column_tiles;
  part.first_row = tile % item.row_tiles * item.rows_per_tile;
  part.first_line = tile / item.row_tiles * item.lines_per_tile;
  part.columns = at_most(item.columns_per_tile, item.column.size - part.first_column);
  part.rows = at_most(item.rows_per_tile, item.row.size - part.first_row);
  part.lines = at_most(item.lines_per_tile, item.lines - part.first_line);
  return part;
}

/// The start of a line, in bytes from the item's first element.
struct line_offsets {
  std::int64_t to = 0, from = 0;
};
SHARDMESH_KERNEL_FUNCTION inline line_offsets offsets_of(const tile_item& item, std::int64_t line) {
  line_offsets at;
  for (int d = item.rank; d-- > 0 && line > 0;) {
    const std::int64_t index = line % item.loops[d].size;
    line /= item.loops[d].size;
    at.to += index * item.loops[d].to;
    at.from += index * item.loops[d].from;
  }
  return at;
}

}  // namespace shardmesh::kernel_bodies
