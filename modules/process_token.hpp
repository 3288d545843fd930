// SPDX-License-Identifier: Apache-2.0
// Identifies this process, so that an object knows whether it is a copy in a forked child. Destructors in the child
// must not remove, finish, or announce anything on behalf of the parent. Shared by all rooms; only .cpp files include
// it.
#pragma once
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace shardmesh::detail {

/// Returns a word that the kernel zeroes in every forked child, including children that no `pthread_atfork` handler
/// sees. Null on systems without this feature.
inline std::atomic<std::uint64_t>* word_wiped_on_fork() noexcept {
#ifdef MADV_WIPEONFORK
  const auto size_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const page = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, size_bytes, MADV_WIPEONFORK) == 0) return static_cast<std::atomic<std::uint64_t>*>(page);
  ::munmap(page, size_bytes);
#endif
  return nullptr;
}

/// A number, never 0, that differs between a process and its forked children. Cost: one load; only the first call in a
/// process makes system calls.
inline std::uint64_t process_token() noexcept {
  static std::atomic<std::uint64_t>* const word = word_wiped_on_fork();
  if (word == nullptr) return static_cast<std::uint64_t>(::getpid());
  std::uint64_t known = word->load(std::memory_order_relaxed);
  if (known != 0) return known;
  // Process ids are reused, so the token also contains the time.
  ::timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto nanoseconds =
      static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  const std::uint64_t fresh = nanoseconds << 22 | static_cast<std::uint64_t>(::getpid());
  return word->compare_exchange_strong(known, fresh) ? fresh : known;
}

/// Remembers the process that made an object.
class maker_process {
 public:
  bool is_this() const noexcept { return token_ == process_token(); }

 private:
  std::uint64_t token_ = process_token();
};

/// A lock for a few words that a forked child continues to use. A mutex that another thread of the parent holds at the
/// fork stays locked in the child for ever; the child takes over this lock, because the holding thread does not exist
/// there. The child may then see a half-done change, so each word must be valid on its own.
class lock_across_fork {
 public:
  void lock() noexcept {
    const std::uint64_t mine = process_token();
    for (std::uint64_t holder = 0; !holder_.compare_exchange_weak(holder, mine, std::memory_order_acquire);)
      if (holder == mine) {
        ::sched_yield();
        holder = 0;
      }
  }
  void unlock() noexcept { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::uint64_t> holder_ = 0;  // the token of the holder's process; 0: unlocked
};

/// Waits for the thread of background work; `state` has a `thread` and its `maker`. A forked child has no such thread,
/// and the work may be half done there, so the child leaks `state`.
template <class State>
void end_background_work(std::unique_ptr<State>& state) {
  if (!state) return;
  if (!state->maker.is_this()) return static_cast<void>(state.release());
  if (state->thread.joinable()) state->thread.join();
}

}  // namespace shardmesh::detail
