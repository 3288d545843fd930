// SPDX-License-Identifier: Apache-2.0
// Runs a tile with a team of a device. Contiguous bytes move 16 at a time. An unaligned source is read in aligned
// 16-byte pieces and shifted in registers. Short lines are packed, so that the threads of a team have neighbouring
// pieces. Transposes pass through scratch memory. Hosts are in host_tile.hpp; launches are in launch.cuh.
#pragma once
#include <shardmesh/kernels/direct.hpp>
#include <shardmesh/kernels/teams.hpp>
#include <shardmesh/kernels/tiled_batch.hpp>

namespace shardmesh::kernel_bodies {

struct alignas(16) words {
  std::uint32_t word[4];
};
static_assert(sizeof(words) == 16, "one load of a device");

// Loads words that are read once, so that caching them is useless.
SHARDMESH_KERNEL_FUNCTION inline words load_words(const std::byte* from) {
#if defined(__CUDA_ARCH__)
  const uint4 v = __ldcs(reinterpret_cast<const uint4*>(from));
  return {{v.x, v.y, v.z, v.w}};
#else
  return *reinterpret_cast<const words*>(from);
#endif
}
// Loads words that the neighbouring thread reads again.
SHARDMESH_KERNEL_FUNCTION inline words load_shared_words(const std::byte* from) {
#if defined(__CUDA_ARCH__)
  const uint4 v = __ldca(reinterpret_cast<const uint4*>(from));
  return {{v.x, v.y, v.z, v.w}};
#else
  return *reinterpret_cast<const words*>(from);
#endif
}
SHARDMESH_KERNEL_FUNCTION inline void store_words(std::byte* to, const words& v) {
#if defined(__CUDA_ARCH__)
  __stcs(reinterpret_cast<uint4*>(to), make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
#else
  *reinterpret_cast<words*>(to) = v;
#endif
}
SHARDMESH_KERNEL_FUNCTION inline std::uint32_t shifted(std::uint32_t low, std::uint32_t high, unsigned bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<std::uint32_t>(((static_cast<std::uint64_t>(high) << 32) | low) >> bits);
#endif
}
// The 16 bytes that begin `apart` bytes after the start of `first`, which `second` follows.
SHARDMESH_KERNEL_FUNCTION inline words realigned(const words& first, const words& second, unsigned apart) {
  const unsigned bits = apart % 4 * 8;
  const std::uint32_t all[8] = {first.word[0],  first.word[1],  first.word[2],  first.word[3],
                                second.word[0], second.word[1], second.word[2], second.word[3]};
  words made;
  // The compiler knows the indices in each branch, so `all` stays in registers.
  switch (apart / 4) {
    case 0:
      for (int i = 0; i < 4; ++i) made.word[i] = shifted(all[i], all[i + 1], bits);
      break;
    case 1:
      for (int i = 0; i < 4; ++i) made.word[i] = shifted(all[i + 1], all[i + 2], bits);
      break;
    case 2:
      for (int i = 0; i < 4; ++i) made.word[i] = shifted(all[i + 2], all[i + 3], bits);
      break;
    default:
      for (int i = 0; i < 3; ++i) made.word[i] = shifted(all[i + 3], all[i + 4], bits);
      made.word[3] = shifted(all[6], all[7], bits);
      break;
  }
  return made;
}
SHARDMESH_KERNEL_FUNCTION inline unsigned low_bits(const void* at) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) & 15u);
}

/// Moves `bytes` with `size` threads together; this is thread `rank`.
SHARDMESH_KERNEL_FUNCTION inline void move_together(std::int64_t rank, std::int64_t size, std::byte* to,
                                                    const std::byte* from, std::int64_t bytes) {
  const std::int64_t before = (16 - low_bits(to)) & 15;
  const std::int64_t head = before < bytes ? before : bytes;
  for (std::int64_t i = rank; i < head; i += size) to[i] = from[i];
  const std::int64_t pieces = (bytes - head) / 16, tail = head + 16 * pieces;
  std::byte* const target = to + head;
  const std::byte* const source = from + head;
  const unsigned apart = low_bits(source);
  if (apart == 0) {
    std::int64_t i = rank;
    for (; i + 3 * size < pieces; i += 4 * size) {  // four loads in flight at a time
      words held[4];
      for (int k = 0; k < 4; ++k) held[k] = load_words(source + 16 * (i + k * size));
      for (int k = 0; k < 4; ++k) store_words(target + 16 * (i + k * size), held[k]);
    }
    for (; i < pieces; i += size) store_words(target + 16 * i, load_words(source + 16 * i));
  } else {
    for (std::int64_t i = rank; i < pieces; i += size) {
      const std::byte* const first = source + 16 * i - apart;
      if (first >= from && first + 32 <= from + bytes) {
        store_words(target + 16 * i, realigned(load_shared_words(first), load_shared_words(first + 16), apart));
      } else {  // bytes beside the run may be unmapped
        for (int k = 0; k < 16; ++k) target[16 * i + k] = source[16 * i + k];
      }
    }
  }
  for (std::int64_t i = tail + rank; i < bytes; i += size) to[i] = from[i];
}

template <class Unit>
SHARDMESH_KERNEL_FUNCTION inline void move_unit(std::byte* to, const std::byte* from) {
  *reinterpret_cast<Unit*>(to) = *reinterpret_cast<const Unit*>(from);
}
SHARDMESH_KERNEL_FUNCTION inline void move_aligned(std::byte* to, const std::byte* from, int width) {
  switch (width) {
    case 16:
      return store_words(to, load_words(from));
    case 8:
      return move_unit<std::uint64_t>(to, from);
    case 4:
      return move_unit<std::uint32_t>(to, from);
    case 2:
      return move_unit<std::uint16_t>(to, from);
    default:
      *to = *from;
  }
}

// The offsets of a tile's lines, which the team computes once.
template <class Team>
SHARDMESH_KERNEL_FUNCTION inline const line_offsets* line_table(const Team& team, const tile_item& item,
                                                                const tile_part& part) {
  auto* const lines = reinterpret_cast<line_offsets*>(team.scratch());
  team.for_each(part.lines, [&](std::int64_t i) { lines[i] = offsets_of(item, part.first_line + i); });
  team.sync();
  return lines;
}

template <class Team>
SHARDMESH_KERNEL_FUNCTION inline void move_runs(const Team& team, const tile_item& item, const tile_part& part,
                                                std::byte* to, const std::byte* from) {
  if (part.lines == 1) {
    const line_offsets at = offsets_of(item, part.first_line);
    team.for_each(team.size(), [&](std::int64_t rank) {
      move_together(rank, team.size(), to + at.to + part.first_column, from + at.from + part.first_column,
                    part.columns);
    });
    return;
  }
  const line_offsets* const lines = line_table(team, item, part);
  const auto all_bits = static_cast<unsigned>(item.stride_bits) | low_bits(to) | low_bits(from) | 16u;
  const auto width = static_cast<int>(all_bits & (0u - all_bits));  // of the widest aligned pieces
  if (width >= 4 || part.columns < 64) {
    const auto pieces = static_cast<std::int64_t>(part.columns / width);
    team.for_each(part.lines * pieces, [&](std::int64_t i) {
      const auto line = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(pieces);
      const std::int64_t piece = (i - line * pieces) * width;
      move_aligned(to + lines[line].to + piece, from + lines[line].from + piece, width);
    });
  } else {
    const std::int64_t lanes = part.columns >= 512 ? 32 : 8;
    team.for_each(part.lines * lanes, [&](std::int64_t i) {
      const line_offsets at = lines[i / lanes];
      move_together(i % lanes, lanes, to + at.to, from + at.from, part.columns);
    });
  }
  team.sync();  // before scratch is used again
}

// Moves squares of 32 x 32 elements through scratch, so that both sides access neighbouring bytes. `in(cell, from)` and
// `out(to, cell)` move one element of at most sizeof(Cell) bytes.
template <class Cell, class Team, class In, class Out>
SHARDMESH_KERNEL_FUNCTION inline void pass_squares(const Team& team, const tile_item& item, const tile_part& part,
                                                   std::byte* to, const std::byte* from, const In& in, const Out& out) {
  constexpr std::int64_t edge = 32;
  auto* const square = reinterpret_cast<Cell*>(team.scratch());
  for (std::int64_t line = 0; line < part.lines; ++line) {
    const line_offsets at = offsets_of(item, part.first_line + line);
    for (std::int64_t r = part.first_row; r < part.first_row + part.rows; r += edge)
      for (std::int64_t c = part.first_column; c < part.first_column + part.columns; c += edge) {
        std::byte* const t = to + at.to + r * item.row.to + c * item.column.to;
        const std::byte* const f = from + at.from + r * item.row.from + c * item.column.from;
        const std::int64_t rows = at_most(edge, part.first_row + part.rows - r);
        const std::int64_t columns = at_most(edge, part.first_column + part.columns - c);
        team.for_each(edge * edge, [&](std::int64_t i) {
          const std::int64_t row = i % edge, column = i / edge;
          if (row < rows && column < columns)
            in(&square[column * (edge + 1) + row], f + row * item.row.from + column * item.column.from);
        });
        team.sync();
        team.for_each(edge * edge, [&](std::int64_t i) {
          const std::int64_t column = i % edge, row = i / edge;
          if (row < rows && column < columns)
            out(t + row * item.row.to + column * item.column.to, &square[column * (edge + 1) + row]);
        });
        team.sync();
      }
  }
}

template <class Team>
SHARDMESH_KERNEL_FUNCTION inline void move_planes(const Team& team, const tile_item& item, const tile_part& part,
                                                  std::byte* to, const std::byte* from) {
  const unsigned bits = static_cast<unsigned>(item.stride_bits) | low_bits(to) | low_bits(from);
  const auto typed = [&](auto unit) {
    using Unit = decltype(unit);
    pass_squares<Unit>(
        team, item, part, to, from, [](Unit* cell, const std::byte* f) { *cell = *reinterpret_cast<const Unit*>(f); },
        [](std::byte* t, const Unit* cell) { *reinterpret_cast<Unit*>(t) = *cell; });
  };
  if (bits % static_cast<unsigned>(item.to_bytes) == 0) {
    if (item.to_bytes == 1) return typed(std::uint8_t{});
    if (item.to_bytes == 2) return typed(std::uint16_t{});
    if (item.to_bytes == 4) return typed(std::uint32_t{});
    if (item.to_bytes == 8) return typed(std::uint64_t{});
    if (item.to_bytes == 16) return typed(words{});
  }
  const auto bytes = static_cast<int>(item.to_bytes);
  pass_squares<words>(
      team, item, part, to, from,
      [bytes](words* cell, const std::byte* f) {
        for (int i = 0; i < bytes; ++i) reinterpret_cast<std::byte*>(cell)[i] = f[i];
      },
      [bytes](std::byte* t, const words* cell) {
        for (int i = 0; i < bytes; ++i) t[i] = reinterpret_cast<const std::byte*>(cell)[i];
      });
}

// --- elements ---

// Converts one element to the item's `to_type` from its `from_type`.
SHARDMESH_KERNEL_FUNCTION inline void convert_one(const tile_item& item, std::byte* to, const std::byte* from) {
  lane_buffer<1> value;
  load_lanes(item.from_type, from, 0, 1, value);
  store_lanes(item.to_type, item.from_lane, value, to, 0, 1);
}
// Accumulates one element. `term` has the dtype of `to`.
SHARDMESH_KERNEL_FUNCTION inline void accumulate_one(const tile_item& item, std::byte* to, const std::byte* term) {
  lane_buffer<1> held, other;
  load_lanes(item.to_type, to, 0, 1, held);
  load_lanes(item.to_type, term, 0, 1, other);
  combine_lanes(item.to_lane, held, other, 1, item.reduction);
  store_lanes(item.to_type, item.to_lane, held, to, 0, 1);
}
SHARDMESH_KERNEL_FUNCTION inline void copy_one(std::byte* to, const std::byte* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}
SHARDMESH_KERNEL_FUNCTION inline void compute_one(const tile_item& item, std::byte* to, const std::byte* from) {
  switch (item.op) {
    case batch_op::copy:
      return convert_one(item, to, from);
    case batch_op::accumulate: {
      alignas(16) std::byte term[16];
      if (item.from_type == item.to_type) return accumulate_one(item, to, from);
      convert_one(item, term, from);
      return accumulate_one(item, to, term);
    }
    case batch_op::fill:
      return copy_one(to, item.pattern, item.to_bytes);
    case batch_op::scale:
    case batch_op::divide: {
      lane_buffer<1> value;
      load_lanes(item.to_type, to, 0, 1, value);
      change_lanes(item.to_lane, value, 1, item.op == batch_op::divide, item.factor);
      return store_lanes(item.to_type, item.to_lane, value, to, 0, 1);
    }
  }
}

// Calls `visit(to, from, column)` with every `step`-th column of all lines of a tile.
template <class Team, class Visit>
SHARDMESH_KERNEL_FUNCTION inline void for_each_column(const Team& team, const tile_item& item, const tile_part& part,
                                                      std::byte* to, const std::byte* from, std::int64_t step,
                                                      const Visit& visit) {
  to += part.first_column * item.column.to;
  from += part.first_column * item.column.from;
  const std::int64_t steps = (part.columns + step - 1) / step;
  const line_offsets* const lines = line_table(team, item, part);
  team.for_each(part.lines * steps, [&](std::int64_t i) {
    const auto line = static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(steps);
    const std::int64_t column = (i - line * steps) * step;
    visit(to + lines[line].to + column * item.column.to, from + lines[line].from + column * item.column.from, column);
  });
  team.sync();  // before scratch is used again
}

// Computes eight neighbouring elements, with the widest loads that they fill.
template <class Direct>
SHARDMESH_KERNEL_FUNCTION inline void compute_eight(Direct, std::byte* to, const std::byte* from) {
  using to_type = typename Direct::to;
  using from_type = typename Direct::from;
  constexpr int to_words = static_cast<int>(8 * sizeof(to_type) / 16);
  constexpr int from_words = static_cast<int>(8 * sizeof(from_type) / 16);
  static_assert(to_words >= 1 && from_words >= 1, "elements of two bytes and more");
  words read[from_words], held[to_words];
  for (int k = 0; k < from_words; ++k) read[k] = load_words(from + 16 * k);
  if constexpr (Direct::reads_to)
    for (int k = 0; k < to_words; ++k) held[k] = load_words(to + 16 * k);
  from_type given[8];
  to_type made[8] = {};
  std::memcpy(given, read, sizeof given);
  if constexpr (Direct::reads_to) std::memcpy(made, held, sizeof made);
  for (int i = 0; i < 8; ++i) made[i] = Direct::apply(made[i], given[i]);
  std::memcpy(held, made, sizeof held);
  for (int k = 0; k < to_words; ++k) store_words(to + 16 * k, held[k]);
}

template <class Team>
SHARDMESH_KERNEL_FUNCTION inline void compute_elements(const Team& team, const tile_item& item, const tile_part& part,
                                                       std::byte* to, const std::byte* from) {
  const unsigned bits = static_cast<unsigned>(item.stride_bits) | low_bits(to) | low_bits(from) |
                        static_cast<unsigned>(part.first_column * item.column.to) |
                        static_cast<unsigned>(part.first_column * item.column.from);
  const bool in_words =
      item.column.to == item.to_bytes && item.column.from == item.from_bytes && (bits & 15u) == 0 && part.columns >= 8;
  if (in_words && with_direct(item.op, item.reduction, item.to_type, item.from_type, [&](auto direct) {
        for_each_column(team, item, part, to, from, 8, [&](std::byte* t, const std::byte* f, std::int64_t column) {
          if (column + 8 <= part.columns) return compute_eight(direct, t, f);
          for (std::int64_t i = 0; i < part.columns - column; ++i)
            compute_one(item, t + i * item.column.to, f + i * item.column.from);
        });
      }))
    return;
  for_each_column(team, item, part, to, from, 1,
                  [&](std::byte* t, const std::byte* f, std::int64_t) { compute_one(item, t, f); });
}

template <class Team>
SHARDMESH_KERNEL_FUNCTION inline void compute_planes(const Team& team, const tile_item& item, const tile_part& part,
                                                     std::byte* to, const std::byte* from) {
  pass_squares<words>(
      team, item, part, to, from,
      [&](words* cell, const std::byte* f) {
        auto* const converted = reinterpret_cast<std::byte*>(cell);
        if (item.from_type == item.to_type)
          copy_one(converted, f, item.to_bytes);
        else
          convert_one(item, converted, f);
      },
      [&](std::byte* t, const words* cell) {
        const auto* const converted = reinterpret_cast<const std::byte*>(cell);
        if (item.op == batch_op::accumulate)
          accumulate_one(item, t, converted);
        else
          copy_one(t, converted, item.to_bytes);
      });
}

/// Runs tile `tile` of an item whose elements begin at these addresses. All threads of the team call it. Without
/// `Computes`, items that convert or compute have no code; precondition: there are none.
template <bool Computes = true, class Team>
SHARDMESH_KERNEL_FUNCTION inline void run_tile(const Team& team, const tile_item& item, std::int64_t tile,
                                               std::byte* to, const std::byte* from) {
  const tile_part part = part_of(item, tile);
  if (item.kind == tile_kind::runs) return move_runs(team, item, part, to, from);
  if (item.kind == tile_kind::planes) return move_planes(team, item, part, to, from);
  if constexpr (Computes) {
    if (item.kind == tile_kind::elements) return compute_elements(team, item, part, to, from);
    compute_planes(team, item, part, to, from);
  }
}

}  // namespace shardmesh::kernel_bodies
