// SPDX-License-Identifier: Apache-2.0
// The waiting of one rank among threads: it spins, yields, and sleeps; and its exchanges for reuse.
module;
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.comm;

import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;

// A wait first spins, then yields, then sleeps. Where ranks outnumber the cores, it spins only a few times: the awaited
// rank may need this core, each yield may cost a time slice, and a sleeper is scheduled sooner than a thread that
// yields.
constexpr std::int32_t least_looks = 2, patient_looks = 2048;
constexpr int yields = 12;

// Pauses between two polls of a variable that another core writes.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

}  // namespace

std::int32_t most_looks_among(std::int32_t ranks) {
  return static_cast<std::uint32_t>(ranks) <= std::thread::hardware_concurrency() ? patient_looks : least_looks;
}

void rank_desk::signal() {
  signals.fetch_add(1, std::memory_order_relaxed);
  changed.notify_all();
}

void rank_desk::wait(guard& locked, const time_limit& deadline, std::int32_t most_looks) {
  const std::uint32_t before = signals.load(std::memory_order_relaxed);
  const auto is_signalled = [&] { return signals.load(std::memory_order_relaxed) != before; };
  // After a futile spin, the next one is half as long. Once in a while, a full spin is tried: cores may be free by
  // then.
  const bool tries_again = ++waits % 2048 == 0;
  const std::int32_t longest = std::min(tries_again ? most_looks : looks, most_looks);
  locked.unlock();
  for (std::int32_t i = 0; i < longest && !is_signalled(); ++i) relax();
  const bool paid = is_signalled();
  for (int i = 0; i < yields && !is_signalled(); ++i) std::this_thread::yield();
  enter(locked);
  if (paid)
    looks = most_looks;
  else if (!tries_again)
    looks = std::max(longest / 2, least_looks);
  if (deadline)
    changed.wait_until(locked, *deadline, is_signalled);
  else
    changed.wait(locked, is_signalled);
}

thread_exchange* rank_desk::take_idle() {
  if (idle.empty()) {
    idle.reserve(owned.size());
    thread_exchange* next = returned.exchange(nullptr, std::memory_order_acquire);
    for (; next != nullptr; next = next->next_returned) idle.push_back(next);
  }
  if (idle.empty()) return nullptr;
  thread_exchange* const taken = idle.back();
  idle.pop_back();
  return taken;
}

void rank_desk::give_back(thread_exchange& exchange) {
  exchange.next_returned = returned.load(std::memory_order_relaxed);
  while (!returned.compare_exchange_weak(exchange.next_returned, &exchange, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
}

void enter(guard& unlocked) {
  for (int i = 0; i < 16; ++i) {
    if (unlocked.try_lock()) return;
    relax();
  }
  unlocked.lock();
}

guard enter(thread_state& group) {
  guard locked(group.lock, std::defer_lock);
  enter(locked);
  return locked;
}

}  // namespace shardmesh
