// SPDX-License-Identifier: Apache-2.0
// Runs a tile with one host thread. Teams of a device are in device_tile.hpp.
#pragma once
#include <shardmesh/kernels/direct.hpp>
#include <shardmesh/kernels/host_planes.hpp>
#include <shardmesh/kernels/host_runs.hpp>
#include <shardmesh/kernels/teams.hpp>
#include <shardmesh/kernels/tiled_batch.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace shardmesh::kernel_bodies {

/// Calls `visit(to, from, count, to_step, from_step)` for each series of evenly spaced lines.
template <class Visit>
inline void for_each_segment(const tile_item& item, std::int64_t first, std::int64_t lines, const Visit& visit) {
  if (item.rank == 0) return visit(std::int64_t{0}, std::int64_t{0}, lines, std::int64_t{0}, std::int64_t{0});
  const batch_loop& inner = item.loops[item.rank - 1];
  std::int64_t index = first % inner.size;
  std::int64_t at[batch_max_loops]{};
  line_offsets outer = offsets_of(item, first - index);
  for (std::int64_t rest = first / inner.size, d = item.rank - 2; d >= 0; --d) {
    at[d] = rest % item.loops[d].size;
    rest /= item.loops[d].size;
  }
  while (lines > 0) {
    const std::int64_t count = at_most(inner.size - index, lines);
    visit(outer.to + index * inner.to, outer.from + index * inner.from, count, inner.to, inner.from);
    lines -= count;
    index = 0;
    for (int d = item.rank - 2; d >= 0; --d) {
      const batch_loop& l = item.loops[d];
      outer.to += l.to;
      outer.from += l.from;
      if (++at[d] < l.size) break;
      outer.to -= l.to * l.size;
      outer.from -= l.from * l.size;
      at[d] = 0;
    }
  }
}

inline void move_runs(const tile_item& item, const tile_part& part, std::byte* to, const std::byte* from) {
  const auto run = static_cast<std::size_t>(part.columns);
  const batch_loop inner = item.rank > 0 ? item.loops[item.rank - 1] : batch_loop{};
  const std::int64_t to_bits =
      part.columns | inner.to | static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to));
  const bool in_words = part.lines > 1 && inner.to == part.columns && (to_bits | item.stride_bits) % 16 == 0;
  with_run(run, item.streams, in_words, inner.from, [&](const auto& move) {
    for_each_segment(
        item, part.first_line, part.lines,
        [&](std::int64_t t, std::int64_t f, std::int64_t count, std::int64_t to_step, std::int64_t from_step) {
          std::byte* cell = to + t + part.first_column;
          const std::byte* source = from + f + part.first_column;
          for (std::int64_t i = 0; i < count; ++i, cell += to_step, source += from_step) move(cell, source);
        });
  });
}

inline void move_planes(const tile_item& item, const tile_part& part, std::byte* to, const std::byte* from) {
  const host_plane plane{part.rows, item.row.to, item.row.from, part.columns, item.column.to, item.column.from};
  to += part.first_row * item.row.to + part.first_column * item.column.to;
  from += part.first_row * item.row.from + part.first_column * item.column.from;
  const auto go = [&](auto width) {
    for_each_segment(
        item, part.first_line, part.lines,
        [&](std::int64_t t, std::int64_t f, std::int64_t count, std::int64_t to_step, std::int64_t from_step) {
          for (std::int64_t i = 0; i < count; ++i, t += to_step, f += from_step)
            move_plane<decltype(width)::value>(to + t, from + f, plane, item.streams);
        });
  };
  switch (item.to_bytes) {
    case 1:
      go(std::integral_constant<std::size_t, 1>{});
      return finish_streaming();
    case 2:
      go(std::integral_constant<std::size_t, 2>{});
      return finish_streaming();
    case 4:
      go(std::integral_constant<std::size_t, 4>{});
      return finish_streaming();
    case 8:
      go(std::integral_constant<std::size_t, 8>{});
      return finish_streaming();
    case 16:
      go(std::integral_constant<std::size_t, 16>{});
      return finish_streaming();
    default:
      break;
  }
  // Longer cells move in squares, whose pages stay in the processor's TLB.
  constexpr std::int64_t edge = 32;
  // Only whole lines bypass the cache: a partial line would be written twice.
  const auto to_bits = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to)) | item.to_bytes;
  const bool in_lines = (to_bits | item.stride_bits) % 64 == 0;
  with_run(static_cast<std::size_t>(item.to_bytes), item.streams, in_lines, item.row.from, [&](const auto& move) {
    const auto squares = [&](std::byte* t, const std::byte* f) {
      for (std::int64_t c = 0; c < plane.columns; c += edge)
        for (std::int64_t r = 0; r < plane.rows; r += edge)
          for (std::int64_t i = c; i < at_most(plane.columns, c + edge); ++i)
            for (std::int64_t k = r; k < at_most(plane.rows, r + edge); ++k)
              move(t + k * plane.row_to + i * plane.column_to, f + k * plane.row_from + i * plane.column_from);
    };
    for_each_segment(
        item, part.first_line, part.lines,
        [&](std::int64_t t, std::int64_t f, std::int64_t count, std::int64_t to_step, std::int64_t from_step) {
          for (std::int64_t i = 0; i < count; ++i, t += to_step, f += from_step) squares(to + t, from + f);
        });
  });
}

inline constexpr int host_pass = 256;

inline void fill_elements(const tile_item& item, std::byte* to, std::int64_t stride, std::int64_t count) {
  const std::int64_t bytes = item.to_bytes;
  if (stride != bytes) {
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(to + i * stride, item.pattern, static_cast<std::size_t>(bytes));
    return;
  }
  const std::int64_t all = count * bytes;
  std::int64_t at = 0;
  for (; at + 16 <= all; at += 16) std::memcpy(to + at, item.pattern, 16);
  std::memcpy(to + at, item.pattern, static_cast<std::size_t>(all - at));
}

// Computes at most host_pass elements along one loop.
inline void compute_pass(const tile_item& item, std::byte* to, std::int64_t to_stride, const std::byte* from,
                         std::int64_t from_stride, int count) {
  lane_buffer<host_pass> lanes, other;
  switch (item.op) {
    case batch_op::copy:
      load_lanes(item.from_type, from, from_stride, count, lanes);
      return store_lanes(item.to_type, item.from_lane, lanes, to, to_stride, count);
    case batch_op::accumulate:
      load_lanes(item.from_type, from, from_stride, count, other);
      if (item.from_type != item.to_type) {
        lane_buffer<host_pass> converted;
        auto* const bytes = reinterpret_cast<std::byte*>(converted.bytes);
        store_lanes(item.to_type, item.from_lane, other, bytes, item.to_bytes, count);
        load_lanes(item.to_type, bytes, item.to_bytes, count, other);
      }
      load_lanes(item.to_type, to, to_stride, count, lanes);
      combine_lanes(item.to_lane, lanes, other, count, item.reduction);
      return store_lanes(item.to_type, item.to_lane, lanes, to, to_stride, count);
    case batch_op::scale:
    case batch_op::divide:
      load_lanes(item.to_type, to, to_stride, count, lanes);
      change_lanes(item.to_lane, lanes, count, item.op == batch_op::divide, item.factor);
      return store_lanes(item.to_type, item.to_lane, lanes, to, to_stride, count);
    case batch_op::fill:
      return fill_elements(item, to, to_stride, count);
  }
}
inline void compute_line(const tile_item& item, std::byte* to, const std::byte* from, const batch_loop& along,
                         std::int64_t count) {
  if (item.op == batch_op::fill) return fill_elements(item, to, along.to, count);
  for (std::int64_t done = 0; done < count; done += host_pass)
    compute_pass(item, to + done * along.to, along.to, from + done * along.from, along.from,
                 static_cast<int>(at_most(host_pass, count - done)));
}

// Computes elements that are contiguous on both sides.
template <class Direct>
inline void compute_some(Direct, std::byte* to, const std::byte* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::byte* const at = to + i * static_cast<std::int64_t>(sizeof(typename Direct::to));
    typename Direct::to held{};
    if constexpr (Direct::reads_to) held = load_as<typename Direct::to>(at);
    store_as(at, Direct::apply(held, load_as<typename Direct::from>(
                                         from + i * static_cast<std::int64_t>(sizeof(typename Direct::from)))));
  }
}

// Prefetches one page ahead, because processors prefetch only up to the end of a page.
template <class Direct>
inline void compute_directly(Direct direct, std::byte* to, const std::byte* from, std::int64_t count) {
  constexpr std::int64_t some = 256, page = 4096;
  constexpr auto to_bytes = static_cast<std::int64_t>(sizeof(typename Direct::to));
  constexpr auto from_bytes = static_cast<std::int64_t>(sizeof(typename Direct::from));
  for (std::int64_t done = 0; done < count; done += some) {
    fetch(from + done * from_bytes + page, some * from_bytes);
    if constexpr (Direct::reads_to) fetch(to + done * to_bytes + page, some * to_bytes);
    compute_some(direct, to + done * to_bytes, from + done * from_bytes, at_most(some, count - done));
  }
}

// Computes in the L1 cache and writes past the other caches.
inline constexpr std::int64_t direct_pass = 1024;
template <class Direct>
inline void compute_streamed(Direct direct, std::byte* to, const std::byte* from, std::int64_t count) {
  constexpr auto to_bytes = static_cast<std::int64_t>(sizeof(typename Direct::to));
  constexpr auto from_bytes = static_cast<std::int64_t>(sizeof(typename Direct::from));
  alignas(64) std::byte made[direct_pass * to_bytes];
  // The first pass is shorter, so that the others begin at cache lines.
  const auto apart = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % 64) / to_bytes;
  for (std::int64_t done = 0, length = direct_pass - apart; done < count; done += length, length = direct_pass) {
    const std::int64_t now = at_most(length, count - done);
    compute_directly(direct, made, from + done * from_bytes, now);
    stream_bytes(to + done * to_bytes, made, static_cast<std::size_t>(now * to_bytes), 0);
  }
}

inline void compute_elements(const tile_item& item, const tile_part& part, std::byte* to, const std::byte* from) {
  to += part.first_column * item.column.to;
  from += part.first_column * item.column.from;
  const bool streams = item.streams && part.columns >= direct_pass;
  const auto each_line = [&](const auto& line) {
    for_each_segment(
        item, part.first_line, part.lines,
        [&](std::int64_t t, std::int64_t f, std::int64_t count, std::int64_t to_step, std::int64_t from_step) {
          for (std::int64_t i = 0; i < count; ++i, t += to_step, f += from_step) line(to + t, from + f);
        });
  };
  const auto directly = [&](auto direct) {
    if constexpr (!decltype(direct)::reads_to)
      if (streams) {
        each_line([&](std::byte* t, const std::byte* f) { compute_streamed(direct, t, f, part.columns); });
        return finish_streaming();
      }
    each_line([&](std::byte* t, const std::byte* f) { compute_directly(direct, t, f, part.columns); });
  };
  if (item.column.to == item.to_bytes && item.column.from == item.from_bytes &&
      (with_direct(item.op, item.reduction, item.to_type, item.from_type, directly) ||
       (item.op == batch_op::copy && with_direct_float8(item.to_type, item.from_type, directly))))
    return;
  each_line([&](std::byte* t, const std::byte* f) { compute_line(item, t, f, item.column, part.columns); });
}

// Passes run along rows, where `from` is dense. A band of columns at a time keeps the lines of `to` in the cache.
inline void compute_planes(const tile_item& item, const tile_part& part, std::byte* to, const std::byte* from) {
  constexpr std::int64_t band = 32;
  to += part.first_row * item.row.to + part.first_column * item.column.to;
  from += part.first_row * item.row.from + part.first_column * item.column.from;
  const auto plane = [&](std::byte* t, const std::byte* f) {
    for (std::int64_t c = 0; c < part.columns; c += band)
      for (std::int64_t r = 0; r < part.rows; r += host_pass)
        for (std::int64_t i = c; i < at_most(part.columns, c + band); ++i)
          compute_pass(item, t + r * item.row.to + i * item.column.to, item.row.to,
                       f + r * item.row.from + i * item.column.from, item.row.from,
                       static_cast<int>(at_most(host_pass, part.rows - r)));
  };
  for_each_segment(
      item, part.first_line, part.lines,
      [&](std::int64_t t, std::int64_t f, std::int64_t count, std::int64_t to_step, std::int64_t from_step) {
        for (std::int64_t i = 0; i < count; ++i, t += to_step, f += from_step) plane(to + t, from + f);
      });
}

/// Runs tile `tile` of an item whose elements begin at these addresses.
inline void run_tile(single_thread, const tile_item& item, std::int64_t tile, std::byte* to, const std::byte* from) {
  const tile_part part = part_of(item, tile);
  switch (item.kind) {
    case tile_kind::runs:
      return move_runs(item, part, to, from);
    case tile_kind::planes:
      return move_planes(item, part, to, from);
    case tile_kind::elements:
      return compute_elements(item, part, to, from);
    case tile_kind::element_planes:
      return compute_planes(item, part, to, from);
  }
}

}  // namespace shardmesh::kernel_bodies
