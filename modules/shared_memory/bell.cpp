// SPDX-License-Identifier: Apache-2.0
// Waiting and waking. A wait spins first, because most waits are shorter than going to sleep and waking up.
module;
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <thread>
module shardmesh.shared_memory;

import :segment;

namespace shardmesh::shared_memory {
namespace {

using clock = std::chrono::steady_clock;

std::uint32_t* address(word& w) {
  return reinterpret_cast<std::uint32_t*>(&w);
}

void pause_a_moment() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

void segment::ring_bell(std::int32_t rank) {
  desk& other = desk_of(rank);
  other.bell.fetch_add(1);
  if (other.sleepers.load() > 0) ::syscall(SYS_futex, address(other.bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void segment::ring_all_bells() {
  for (std::int32_t rank = 0; rank < size(); ++rank) ring_bell(rank);
}

void segment::wait_for_bell(std::int32_t rank, std::uint32_t seen, clock::time_point until) {
  static const std::int32_t cores = std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
  constexpr int most_looks = 4000, most_yields = 24;
  desk& mine = desk_of(rank);
  const auto has_rung = [&] { return mine.bell.load() != seen; };
  // Where ranks outnumber the cores, a spinning rank may take the core that the awaited rank needs.
  for (int looks = size() <= cores ? most_looks : 0; looks > 0; --looks) {
    if (has_rung()) return;
    pause_a_moment();
  }
  for (int yields = 0; yields < most_yields; ++yields) {
    if (has_rung()) return;
    std::this_thread::yield();
  }
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - clock::now()).count();
  if (left <= 0) return;
  const ::timespec limit{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  mine.sleepers.fetch_add(1);
  if (!has_rung()) ::syscall(SYS_futex, address(mine.bell), FUTEX_WAIT, seen, &limit, nullptr, 0);
  mine.sleepers.fetch_sub(1);
}

}  // namespace shardmesh::shared_memory
