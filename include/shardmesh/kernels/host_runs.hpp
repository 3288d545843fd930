// SPDX-License-Identifier: Apache-2.0
// Moves of runs of bytes by one thread of a host: by their length, and past the cache where they are many. Not here:
// how devices move them (device_tile.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardmesh::kernel_bodies {

// Runs of exactly Bytes bytes.
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

/// Whole lines go past the cache, so they are not read before they are written; what is in front of the first and
/// behind the last does not. After the last one, `finish_streaming`.
inline void stream_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__SSE2__)
  constexpr std::size_t line = 64;
  const std::size_t apart = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  const std::size_t head = apart < bytes ? apart : bytes;
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + line <= bytes; at += line) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at) + 512, _MM_HINT_T0);
    __m128i part[4];
    std::memcpy(part, from + at, line);
    for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + at) + i, part[i]);
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}
inline void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();  // before another thread is told
#endif
}
struct streamed_run {
  std::size_t bytes;
  void operator()(std::byte* to, const std::byte* from) const { stream_bytes(to, from, bytes); }
};

/// Calls `use` with the move for runs of this many bytes.
template <class Use>
inline void with_run(std::size_t run, bool streams, const Use& use) {
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
  if (run <= 128) return use(short_run<64>{run - 64});
  if (streams) return use(streamed_run{run});
  use(long_run{run});
}

}  // namespace shardmesh::kernel_bodies
