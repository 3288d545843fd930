// SPDX-License-Identifier: Apache-2.0
// Moves of one run of bytes, chosen by its length: the innermost step of `copy`. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace shardmesh {

// Elements of exactly Bytes bytes.
template <std::size_t Bytes>
struct fixed_run {
  void operator()(std::byte* to, const std::byte* from) const { std::memcpy(to, from, Bytes); }
};
// Runs of Half < n <= 2 * Half bytes as two overlapping moves: no call, no loop.
template <std::size_t Half>
struct short_run {
  std::size_t last;
  void operator()(std::byte* to, const std::byte* from) const {
    std::byte head[Half], tail[Half];
    std::memcpy(head, from, Half);
    std::memcpy(tail, from + last, Half);
    std::memcpy(to, head, Half);
    std::memcpy(to + last, tail, Half);
  }
};
struct long_run {
  std::size_t bytes;
  void operator()(std::byte* to, const std::byte* from) const { std::memcpy(to, from, bytes); }
};

// Copies of at least this many bytes, in runs of at least this length, bypass the cache. A line that is written whole
// need not be read first, and data as large as a cache would only push out everything else. memcpy does this for long
// runs, but not for the short ones of a part of a matrix.
inline bool streams(std::int64_t run_bytes, std::int64_t runs) {
  return run_bytes >= 512 && runs > 1 && runs >= (512 << 10) / run_bytes;
}
#ifdef __SSE2__
struct streaming_run : long_run {
  std::int64_t next_from;  // offset to the next run's source, prefetched because hardware does not foresee the gap
  // Whole lines bypass the cache. Bytes before the first and after the last whole line do not.
  void operator()(std::byte* to, const std::byte* from) const {
    constexpr std::size_t line = 64;
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + line <= bytes; at += line) {
      _mm_prefetch(reinterpret_cast<const char*>(from + at) + next_from, _MM_HINT_T0);
      __m128i part[4];
      std::memcpy(part, from + at, line);
      for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, part[i]);
    }
    std::memcpy(to + at, from + at, bytes - at);
  }
  static void finish() { _mm_sfence(); }  // before another thread is notified
};
#else
struct streaming_run : long_run {
  std::int64_t next_from;
  static void finish() {}
};
#endif

/// Calls `use` with the move for runs of this many bytes.
template <class Use>
void with_run(std::size_t run, Use use) {
  switch (run) {
    case 1:
      return use(fixed_run<1>{});
    case 2:
      return use(fixed_run<2>{});
    case 4:
      return use(fixed_run<4>{});
    case 8:
      return use(fixed_run<8>{});
    case 16:
      return use(fixed_run<16>{});
    default:
      break;
  }
  if (run < 4) return use(short_run<2>{run - 2});
  if (run < 8) return use(short_run<4>{run - 4});
  if (run < 16) return use(short_run<8>{run - 8});
  if (run <= 32) return use(short_run<16>{run - 16});
  if (run <= 64) return use(short_run<32>{run - 32});
  return use(long_run{run});
}

}  // namespace shardmesh
