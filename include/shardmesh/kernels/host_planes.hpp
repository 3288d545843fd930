// SPDX-License-Identifier: Apache-2.0
// Transposes by one host thread, in squares of a cache line each way. Elements of 1, 2, 4, or 8 bytes are transposed in
// registers. Transposes on devices are in device_tile.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace shardmesh::kernel_bodies {

/// A transpose: rows are dense in `from`, columns in `to`; strides in bytes.
struct host_plane {
  std::int64_t rows, row_to, row_from;
  std::int64_t columns, column_to, column_from;
};

template <std::size_t Bytes>
inline void move_cells(std::byte* to, const std::byte* from, const host_plane& p) {
  for (std::int64_t r = 0; r < p.rows; ++r)
    for (std::int64_t c = 0; c < p.columns; ++c)
      std::memcpy(to + r * p.row_to + c * p.column_to, from + r * p.row_from + c * p.column_from, Bytes);
}

#if defined(__SSE2__)
inline __m128i load_16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline void store_16(std::byte* to, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}
// Transposes 16 / Bytes elements each way: `from` has rows side by side, `to` has columns side by side.
template <std::size_t Bytes>
inline void move_square(std::byte* to, std::int64_t row_to, const std::byte* from, std::int64_t column_from) {
  constexpr int edge = 16 / static_cast<int>(Bytes);
  __m128i a[edge], b[edge];
  for (int i = 0; i < edge; ++i) a[i] = load_16(from + i * column_from);
  // Each step interleaves line i with line i + edge / 2. After log2(edge) steps, lines are columns.
  for (int step = 1; step < edge; step *= 2) {
    for (int i = 0; i < edge / 2; ++i) {
      if constexpr (Bytes == 1) {
        b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + edge / 2]);
        b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + edge / 2]);
      } else if constexpr (Bytes == 2) {
        b[2 * i] = _mm_unpacklo_epi16(a[i], a[i + edge / 2]);
        b[2 * i + 1] = _mm_unpackhi_epi16(a[i], a[i + edge / 2]);
      } else if constexpr (Bytes == 4) {
        b[2 * i] = _mm_unpacklo_epi32(a[i], a[i + edge / 2]);
        b[2 * i + 1] = _mm_unpackhi_epi32(a[i], a[i + edge / 2]);
      } else {
        b[2 * i] = _mm_unpacklo_epi64(a[i], a[i + edge / 2]);
        b[2 * i + 1] = _mm_unpackhi_epi64(a[i], a[i + edge / 2]);
      }
    }
    for (int i = 0; i < edge; ++i) a[i] = b[i];
  }
  for (int i = 0; i < edge; ++i) store_16(to + i * row_to, a[i]);
}
#endif

// Interleave parts of `Bytes` bytes from the lower or the upper half of each 16 bytes.
#if defined(__AVX512BW__)
template <std::size_t Bytes>
inline __m512i lower_pairs(__m512i a, __m512i b) {
  if constexpr (Bytes == 1) return _mm512_unpacklo_epi8(a, b);
  if constexpr (Bytes == 2) return _mm512_unpacklo_epi16(a, b);
  if constexpr (Bytes == 4) return _mm512_unpacklo_epi32(a, b);
  if constexpr (Bytes == 8) return _mm512_unpacklo_epi64(a, b);
}
template <std::size_t Bytes>
inline __m512i upper_pairs(__m512i a, __m512i b) {
  if constexpr (Bytes == 1) return _mm512_unpackhi_epi8(a, b);
  if constexpr (Bytes == 2) return _mm512_unpackhi_epi16(a, b);
  if constexpr (Bytes == 4) return _mm512_unpackhi_epi32(a, b);
  if constexpr (Bytes == 8) return _mm512_unpackhi_epi64(a, b);
}
// Transposes a square of a cache line each way, in registers as wide as a line. A register holds 16 bytes of four
// squares, which are transposed as in `move_square`. Then 16 bytes from each of four registers form a line.
template <std::size_t Bytes>
inline void turn_lines(std::byte* to, std::int64_t row_to, const std::byte* from, std::int64_t column_from,
                       bool streams) {
  constexpr int edge = 16 / static_cast<int>(Bytes);
  __m512i turned[4][edge];
  for (int group = 0; group < 4; ++group) {
    __m512i a[edge], b[edge];
    for (int i = 0; i < edge; ++i) a[i] = _mm512_loadu_si512(from + (group * edge + i) * column_from);
    for (int step = 1; step < edge; step *= 2) {
      for (int i = 0; i < edge / 2; ++i) {
        b[2 * i] = lower_pairs<Bytes>(a[i], a[i + edge / 2]);
        b[2 * i + 1] = upper_pairs<Bytes>(a[i], a[i + edge / 2]);
      }
      for (int i = 0; i < edge; ++i) a[i] = b[i];
    }
    for (int i = 0; i < edge; ++i) turned[group][i] = a[i];
  }
  const auto put = [&](int row, __m512i line) {
    std::byte* const at = to + row * row_to;
    if (streams)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(at), line);
    else
      _mm512_storeu_si512(at, line);
  };
  constexpr int even = 0x88, odd = 0xDD;  // parts 0 and 2 of each side, or 1 and 3
  for (int i = 0; i < edge; ++i) {
    const __m512i low_even = _mm512_shuffle_i32x4(turned[0][i], turned[1][i], even);
    const __m512i low_odd = _mm512_shuffle_i32x4(turned[0][i], turned[1][i], odd);
    const __m512i high_even = _mm512_shuffle_i32x4(turned[2][i], turned[3][i], even);
    const __m512i high_odd = _mm512_shuffle_i32x4(turned[2][i], turned[3][i], odd);
    put(i, _mm512_shuffle_i32x4(low_even, high_even, even));
    put(i + edge, _mm512_shuffle_i32x4(low_odd, high_odd, even));
    put(i + 2 * edge, _mm512_shuffle_i32x4(low_even, high_even, odd));
    put(i + 3 * edge, _mm512_shuffle_i32x4(low_odd, high_odd, odd));
  }
}
#endif

// Transposes a square of a cache line each way, reading and writing each line once and whole. In between, the square
// lies in a buffer, because the lines of a large matrix share few sets of the cache.
template <std::size_t Bytes>
inline void move_lines(std::byte* to, const std::byte* from, const host_plane& p, bool streams) {
#if defined(__SSE2__)
  if constexpr (Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8) {
    constexpr auto width = static_cast<std::int64_t>(Bytes);
    constexpr std::int64_t edge = 64 / width, words = 16 / width;
    if (p.row_from == width && p.column_to == width && p.rows == edge && p.columns == edge) {
#if defined(__AVX512BW__)
      const auto to_bits = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to)) | p.row_to;
      if (!streams || to_bits % 64 == 0) return turn_lines<Bytes>(to, p.row_to, from, p.column_from, streams);
#endif
      alignas(64) std::byte read[edge * 64], turned[edge * 64];
      for (std::int64_t c = 0; c < edge; ++c) std::memcpy(read + c * 64, from + c * p.column_from, 64);
      for (std::int64_t r = 0; r < edge; r += words)
        for (std::int64_t c = 0; c < edge; c += words)
          move_square<Bytes>(turned + r * 64 + c * width, 64, read + c * 64 + r * width, 64);
      if (streams && reinterpret_cast<std::uintptr_t>(to) % 16 == 0 && p.row_to % 16 == 0) {
        for (std::int64_t r = 0; r < edge; ++r)
          for (std::int64_t i = 0; i < 64; i += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + r * p.row_to + i), load_16(turned + r * 64 + i));
      } else {
        for (std::int64_t r = 0; r < edge; ++r) std::memcpy(to + r * p.row_to, turned + r * 64, 64);
      }
      return;
    }
  }
#endif
  (void)streams;
  move_cells<Bytes>(to, from, p);
}

// Goes along rows first, so that each line of `from` is read as one stream.
template <std::size_t Bytes>
inline void move_plane(std::byte* to, const std::byte* from, const host_plane& p, bool streams) {
  constexpr std::int64_t edge = Bytes >= 16 ? 8 : 64 / static_cast<std::int64_t>(Bytes);
  for (std::int64_t c = 0; c < p.columns; c += edge)
    for (std::int64_t r = 0; r < p.rows; r += edge) {
      host_plane square = p;
      square.rows = p.rows - r < edge ? p.rows - r : edge;
      square.columns = p.columns - c < edge ? p.columns - c : edge;
      move_lines<Bytes>(to + r * p.row_to + c * p.column_to, from + r * p.row_from + c * p.column_from, square,
                        streams);
    }
}

}  // namespace shardmesh::kernel_bodies
