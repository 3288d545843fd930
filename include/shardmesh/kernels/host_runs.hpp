// SPDX-License-Identifier: Apache-2.0
// Moves byte runs with one host thread. The length of a run selects the move; large amounts bypass the cache. Moves on
// devices are in device_tile.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
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

/// Prefetches lines; invalid addresses do no harm.
inline void fetch(const std::byte* from, std::int64_t bytes) {
#if defined(__SSE2__)
  for (std::int64_t at = 0; at < bytes; at += 64) _mm_prefetch(reinterpret_cast<const char*>(from + at), _MM_HINT_T0);
#else
  (void)from, (void)bytes;
#endif
}

#if defined(__SSE2__)
// Writes a line of 64 bytes past the cache, with the widest stores of this variant.
inline void stream_line(std::byte* to, const std::byte* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
  __m128i part[4];
  std::memcpy(part, from, 64);
  for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, part[i]);
#endif
}
#endif

/// Copies bytes. Whole lines bypass the cache, so that the destination is not read before it is written. Bytes before
/// the first and after the last whole line pass through the cache. The source is prefetched `ahead` bytes further on.
/// Call `finish_streaming` after the last run.
inline void stream_bytes(std::byte* to, const std::byte* from, std::size_t bytes, std::int64_t ahead) {
#if defined(__SSE2__)
  constexpr std::size_t line = 64, page = 4096, pages = 4;
  const std::size_t apart = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  const std::size_t head = apart < bytes ? apart : bytes;
  std::memcpy(to, from, head);
  std::size_t at = head;
  // Several pages at a time: the processor prefetches within each page, and more of the memory is busy.
  for (; at + pages * page <= bytes; at += pages * page)
    for (std::size_t i = at; i < at + page; i += line)
      for (std::size_t p = 0; p < pages; ++p) {
        _mm_prefetch(reinterpret_cast<const char*>(from + i + p * page) + 8 * line, _MM_HINT_T0);
        stream_line(to + i + p * page, from + i + p * page);
      }
  for (; at + line <= bytes; at += line) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at) + ahead, _MM_HINT_T0);
    stream_line(to + at, from + at);
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  (void)ahead;
  std::memcpy(to, from, bytes);
#endif
}
inline void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();  // before another thread is notified
#endif
}
// A processor prefetches within long runs. After a shorter run, the gap hides the next one, so it is prefetched here.
struct streamed_run {
  std::size_t bytes;
  std::int64_t next_from;  // offset to the source of the next run
  void operator()(std::byte* to, const std::byte* from) const {
    stream_bytes(to, from, bytes, bytes >= 16384 ? 1024 : next_from);
  }
};
// Runs of whole 16-byte words, side by side in aligned memory: together they fill lines.
struct streamed_words {
  std::size_t bytes;
  std::int64_t next_from;
  void operator()(std::byte* to, const std::byte* from) const {
#if defined(__SSE2__)
    for (std::size_t at = 0; at < bytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(from + at) + 8 * next_from, _MM_HINT_T0);
      for (std::size_t i = at; i < at + 64 && i < bytes; i += 16) {
        __m128i word;
        std::memcpy(&word, from + i, 16);
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), word);
      }
    }
#else
    (void)next_from;
    std::memcpy(to, from, bytes);
#endif
  }
};

/// Calls `use` with the move for runs of this many bytes. `next_from` is the offset to the source of the next run.
/// `in_words`: all runs begin at 16-byte words, side by side.
template <class Use>
inline void with_run(std::size_t run, bool streams, bool in_words, std::int64_t next_from, const Use& use) {
  if (streams && run >= 1024) {
    use(streamed_run{run, next_from});
    return finish_streaming();
  }
  if (streams && in_words && run >= 32) {
    use(streamed_words{run, next_from});
    return finish_streaming();
  }
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
  use(long_run{run});
}

}  // namespace shardmesh::kernel_bodies
