// SPDX-License-Identifier: Apache-2.0
// Copies between equal dtypes move runs of bytes. Other copies go pass by pass through lanes.
module;
#include <kernels/ieee_mode.hpp>
#include <shardmesh/kernels/host_runs.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
module shardmesh.kernels;

import :lanes;
import :loops;

namespace shardmesh {
namespace {

// Copies of at least this many bytes, in runs of at least this length, bypass the cache. A line that is written whole
// need not be read first, and data as large as a cache would only push out everything else. memcpy does this for long
// runs, but not for the short ones of a part of a matrix.
bool streams(std::int64_t run_bytes, std::int64_t runs) {
  return run_bytes >= 512 && runs > 1 && runs >= (512 << 10) / run_bytes;
}

// Two inner loops, with strides in bytes.
struct plane {
  std::int64_t rows = 1, row_to = 0, row_from = 0;
  std::int64_t columns = 1, column_to = 0, column_from = 0;
};

template <class Move>
void move_plane(std::byte* to, const std::byte* from, const plane& p, const Move& move) {
  for (std::int64_t r = 0; r < p.rows; ++r, to += p.row_to, from += p.row_from) {
    std::byte* cell = to;
    const std::byte* source = from;
    for (std::int64_t c = 0; c < p.columns; ++c, cell += p.column_to, source += p.column_from) move(cell, source);
  }
}

// Rows are close together in `from`, columns in `to`. Square tiles keep the cache lines of both sides alive.
template <class Move>
void move_tiled(std::byte* to, const std::byte* from, const plane& p, const Move& move) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t r = 0; r < p.rows; r += tile)
    for (std::int64_t c = 0; c < p.columns; c += tile) {
      plane t = p;
      t.rows = std::min(tile, p.rows - r);
      t.columns = std::min(tile, p.columns - c);
      move_plane(to + r * p.row_to + c * p.column_to, from + r * p.row_from + c * p.column_from, t, move);
    }
}

result<void> check_whole_bytes(const loop_nest& nest, std::int64_t run_bits, dtype type) {
  bool whole = run_bits % 8 == 0 && nest.a % 8 == 0 && nest.b % 8 == 0;
  for (std::size_t d = 0; d < nest.rank; ++d) whole = whole && nest.loops[d].a % 8 == 0 && nest.loops[d].b % 8 == 0;
  if (whole) return {};
  return fail(errc::unaligned, "a run of " + std::string(name(type)) + " does not start and end at byte boundaries");
}

// Moves the loop along which `from` is densest next to the innermost one. Returns false, without a change, if no other
// loop is denser or `from` repeats along it.
bool bring_densest_inward(loop_nest& nest) {
  if (nest.rank < 2) return false;
  auto* const last = nest.loops + nest.rank - 1;
  auto* const densest = std::min_element(nest.loops, last + 1,
                                         [](const auto& x, const auto& y) { return std::abs(x.b) < std::abs(y.b); });
  if (densest->b == 0 || std::abs(densest->b) >= std::abs(last->b)) return false;
  std::swap(*densest, *(last - 1));
  return true;
}

result<void> copy_bytes(const tensor_view& to, const const_tensor_view& from) {
  loop_nest nest = free_nest(to, from);
  if (nest.empty) return {};
  std::int64_t run_bits = bits(to.type);
  if (nest.rank > 0 && nest.inner().a == run_bits && nest.inner().b == run_bits) {
    run_bits *= nest.inner().size;
    --nest.rank;
  }
  SHARDMESH_TRY(check_whole_bytes(nest, run_bits, to.type));

  const bool transposed = run_bits <= 128 && bring_densest_inward(nest);
  plane p;
  if (nest.rank > 0) {
    const auto& inner = nest.inner();
    p.columns = inner.size, p.column_to = inner.a / 8, p.column_from = inner.b / 8;
  }
  if (nest.rank > 1) {
    const auto& outer = nest.loops[nest.rank - 2];
    p.rows = outer.size, p.row_to = outer.a / 8, p.row_from = outer.b / 8;
  }
  const auto go = [&](const auto& move) {
    for_each_outer(nest, 2, [&](std::int64_t a, std::int64_t b) {
      if (transposed)
        move_tiled(to.data + a / 8, from.data + b / 8, p, move);
      else
        move_plane(to.data + a / 8, from.data + b / 8, p, move);
    });
  };
  const auto run = static_cast<std::size_t>(run_bits / 8);
  if (streams(run_bits / 8, p.rows * p.columns)) {
    go(kernel_bodies::streamed_run{run, p.column_from});
    kernel_bodies::finish_streaming();
  } else {
    kernel_bodies::with_run(run, false, false, 0, go);
  }
  return {};
}

// Converts one pass along one loop.
void convert_run(const tensor_view& to, const const_tensor_view& from, std::int64_t a, std::int64_t b,
                 const loop_nest::loop& along, std::int64_t count) {
  pass_buffer lanes;
  load_lanes(from.type, from.data + b / 8, along.b / 8, count, lanes);
  store_lanes(to.type, from.type, lanes, to.data + a / 8, along.a / 8, count);
}

// Passes run along `rows`, where `from` is dense. A band of columns at a time keeps the lines of `to` in the cache.
void convert_tiled(const tensor_view& to, const const_tensor_view& from, std::int64_t a, std::int64_t b,
                   const loop_nest::loop& rows, const loop_nest::loop& columns) {
  constexpr std::int64_t band = 32;
  for (std::int64_t c = 0; c < columns.size; c += band)
    for (std::int64_t r = 0; r < rows.size; r += pass_length)
      for (std::int64_t i = c; i < std::min(columns.size, c + band); ++i)
        convert_run(to, from, a + r * rows.a + i * columns.a, b + r * rows.b + i * columns.b, rows,
                    std::min(pass_length, rows.size - r));
}

[[gnu::noinline]] void copy_converted(const tensor_view& to, const const_tensor_view& from) {
  loop_nest nest = free_nest(to, from);
  if (bring_densest_inward(nest)) {
    return for_each_outer(nest, 2, [&](std::int64_t a, std::int64_t b) {
      convert_tiled(to, from, a, b, nest.loops[nest.rank - 2], nest.inner());
    });
  }
  const loop_nest::loop inner = nest.rank > 0 ? nest.inner() : loop_nest::loop{1, 0, 0};
  for_each_outer(nest, 1, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t done = 0; done < inner.size; done += pass_length)
      convert_run(to, from, a + done * inner.a, b + done * inner.b, inner, std::min(pass_length, inner.size - done));
  });
}

// A complex view as its real parts, if those have the dtype `to`. This needs no arithmetic, so NaNs stay bit for bit.
const_tensor_view real_parts(const const_tensor_view& from, dtype to) {
  const bool fits = (from.type == dtype::complex32 && to == dtype::float16) ||
                    (from.type == dtype::complex64 && to == dtype::float32) ||
                    (from.type == dtype::complex128 && to == dtype::float64);
  const_tensor_view real = from;
  if (!fits) return real;
  real.type = to;
  for (std::int64_t& stride : real.strides) stride *= 2;
  return real;
}

bool is_packed(dtype type) {
  return bits(type) % 8 != 0;
}

}  // namespace

bool is_convertible(dtype from, dtype to) {
  if (from == to) return from != dtype::undefined;
  return lane_of(from) != lane::none && lane_of(to) != lane::none && !is_packed(from) && !is_packed(to);
}

result<void> check_cast(dtype from, dtype to, bool allow_narrowing) {
  if (from == dtype::undefined || to == dtype::undefined) return fail(errc::dtype_mismatch, "a dtype is undefined");
  if (from == to) return {};
  if (!is_convertible(from, to))
    return fail(errc::unsupported, "no cast from " + std::string(name(from)) + " to " + std::string(name(to)));
  if (allow_narrowing || widens(from, to)) return {};
  return fail(errc::narrowing, "casting " + std::string(name(from)) + " to " + std::string(name(to)) + " loses values")
      .with_hint("allow narrowing to do it anyway");
}

result<void> copy(const tensor_view& to, const const_tensor_view& from) {
  SHARDMESH_TRY(check_pair(to, from));
  if (!is_convertible(from.type, to.type))
    return fail(errc::unsupported,
                "no conversion from " + std::string(name(from.type)) + " to " + std::string(name(to.type)));
  const const_tensor_view source = real_parts(from, to.type);
  if (source.type == to.type) return copy_bytes(to, source);
  const ieee_mode subnormals_count;
  copy_converted(to, source);
  return {};
}

}  // namespace shardmesh
