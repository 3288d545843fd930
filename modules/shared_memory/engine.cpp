// SPDX-License-Identifier: Apache-2.0
// The calls of an engine: joining, starting, and waiting.
module;
#include <fmt/core.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.shared_memory;

import shardmesh.comm;
import :engine;
import :segment;

namespace shardmesh::shared_memory {
namespace {

using clock = std::chrono::steady_clock;

// The interval at which a wait checks that the awaited processes still exist, and calls `goes_on`.
constexpr std::chrono::milliseconds watch_interval{50};

std::string part_of(const exchange& e) {
  return detail::part_of_call(e.part, e.call);
}

// Counts a waiting thread until its wait ends, also by an exception. Needs the lock.
class counted_thread {
 public:
  explicit counted_thread(std::int32_t& threads) : threads_(threads) { ++threads_; }
  counted_thread(const counted_thread&) = delete;
  counted_thread& operator=(const counted_thread&) = delete;
  ~counted_thread() { --threads_; }

 private:
  std::int32_t& threads_;
};

// Makes a guard word that no other engine has, even at the same address in a later process with the same id.
std::uint64_t random_guard() {
  std::random_device source;
  return static_cast<std::uint64_t>(source()) << 32 | source() | 1;
}

}  // namespace

engine::engine(std::shared_ptr<segment> memory, std::int32_t rank, std::function<bool()> goes_on)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(memory_->size()),
      goes_on_(std::move(goes_on)),
      lines_(static_cast<std::size_t>(size_)),
      guard_(random_guard()) {}

// Clears the guard word, because its address may soon belong to another engine.
engine::~engine() {
  guard_.store(0);
}

bool engine::is_forked() const {
  return !maker_.is_this();
}

error engine::of_another_process() const {
  return detail::of_another_process(rank_, "join a group in the child, or make the call in the parent");
}

template <class Work>
auto engine::guarded(locker& locked, const exchange& e, const Work& work) -> decltype(work()) {
  const auto give_up = [&](errc code, const char* why) {
    if (!locked) locked.lock();
    error reason;
    reason.code = code;
    try {
      reason = fail(code, fmt::format("rank {} {} in {} (tag {})", rank_, why, part_of(e), e.tag)).with_rank(rank_);
    } catch (const std::bad_alloc&) {  // `reason` keeps only the code
    }
    poison(std::move(reason));
  };
  try {
    return work();
  } catch (const std::bad_alloc&) {
    give_up(errc::no_memory, "has no memory left");
    return *poison_;
  } catch (...) {
    give_up(errc::cancelled, "was interrupted by an exception");
    throw;
  }
}

result<void> engine::meet(const call_options& options) {
  locker unlocked(lock_, std::defer_lock);
  exchange joining;
  joining.part = "joining a group of processes";
  joining.call = options.name;
  joining.tag = options.tag;
  joining.limits = detail::call_limits(options);
  return guarded(unlocked, joining, [&] { return meet_all(joining); });
}

result<void> engine::meet_all(const exchange& joining) {
  const std::stop_callback wake(joining.limits.cancel, [this] { memory_->ring_bell(rank_); });
  memory_->ring_all_bells();
  auto next_watch = clock::now() + watch_interval;
  bool is_stopped = false;
  for (;;) {
    const std::uint32_t seen = memory_->desk_of(rank_).bell.load();
    std::vector<std::int32_t> missing;
    bool has_left = false;
    for (std::int32_t other = 0; other < size_; ++other) {
      const presence state = memory_->desk_of(other).state.load();
      if (state == presence::absent) missing.push_back(other);
      has_left = has_left || state == presence::left;
    }
    if (missing.empty()) {
      auto told = memory_->poison();
      if (told && has_left) return *std::move(told);  // a rank gave up joining
      see_memory();
      return {};
    }
    if (auto told = memory_->poison()) return *std::move(told);
    const auto now = clock::now();
    if (now >= next_watch) {
      is_stopped = goes_on_ && !goes_on_();
      next_watch = now + watch_interval;
    }
    if (const errc ended = is_stopped ? errc::cancelled : joining.limits.reached(now); ended != errc::ok) {
      error problem = ended_wait(joining, ended, std::move(missing), {});
      memory_->set_poison(rank_, problem);
      auto first = memory_->poison();  // another rank may have poisoned a moment earlier
      return first ? *std::move(first) : std::move(problem);
    }
    const auto& deadline = joining.limits.deadline;
    memory_->wait_for_bell(rank_, seen, deadline ? std::min(next_watch, *deadline) : next_watch);
  }
}

// Finds the peers whose memory this rank can read, and notes that in their rings.
void engine::see_memory() {
  for (std::int32_t peer = 0; peer < size_ && memory_->reads_memory(); ++peer) {
    if (peer == rank_) continue;
    const detail::peer_memory theirs = memory_->memory_of(peer);
    if (!theirs.is_open()) continue;
    of(peer).memory = theirs;
    memory_->between(peer, rank_).set_reads_memory(true);
  }
}

void engine::leave() {
  if (is_forked()) return;
  const locker locked(lock_);
  memory_->desk_of(rank_).state.store(presence::left);
  memory_->ring_all_bells();
}

error engine::ended_wait(const exchange& e, errc ended, std::vector<std::int32_t> senders,
                         std::vector<std::int32_t> takers) const {
  constexpr std::size_t most = 16;  // ranks whose last call is reported
  error problem = detail::ended_wait(identity_of(e), e.limits, ended, std::move(senders), std::move(takers));
  if (ended != errc::deadline_exceeded) return problem;
  for (const std::int32_t rank : std::span(problem.ranks).first(std::min(problem.ranks.size(), most)))
    problem.found += (problem.found.empty() ? "" : ", ") + memory_->last_call(rank);
  return problem;
}

// Sets the limits of `e`, and notes its name for the other ranks.
result<void> engine::begin_call(exchange& e, const call_options& options) {
  progress();
  SHARDMESH_TRY(e.limits, detail::begin_call(identity_of(e), options, detail::stream_policy::refused, poison_,
                                             [&](error reason) { poison(std::move(reason)); }));
  if (*options.name != '\0') memory_->note_call(rank_, part_of(e));
  return {};
}

result<std::shared_ptr<exchange>> engine::start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                const call_options& options) {
  if (is_forked()) return of_another_process();
  locker locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->call = options.name;
  e->tag = options.tag;
  return guarded(locked, *e, [&]() -> result<std::shared_ptr<exchange>> {
    SHARDMESH_TRY(begin_call(*e, options));
    SHARDMESH_TRY(detail::check_peers(rank_, size_, sends, receives));
    for (const incoming& m : receives) want(m.peer, {e, {frame_kind::message, e->tag}, m.bytes, nullptr});
    for (const outgoing& m : sends) {
      if (poison_) break;
      e->takers.push_back(m.peer);
      frame head{frame_kind::message, e->tag, m.bytes.size()};
      line& at = of(m.peer);
      if (m.bytes.size() >= lent_bytes && at.lent_count < most_lent && memory_->between(rank_, m.peer).reads_memory()) {
        head.kind = frame_kind::lent;
        head.address = reinterpret_cast<std::uintptr_t>(m.bytes.data());
        head.number = next_lent_++;
        ++at.lent_count;
      }
      at.sends.push_back({e, head, m.bytes});
      push(m.peer);
    }
    if (poison_) return *poison_;
    return e;
  });
}

result<std::vector<std::vector<std::byte>>> engine::all_gather(std::span<const std::byte> bytes,
                                                               const call_options& options) {
  if (is_forked()) return of_another_process();
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_));
  locker locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->part = "an all_gather";
  e->call = options.name;
  e->tag = options.tag;
  SHARDMESH_TRY(guarded(locked, *e, [&]() -> result<void> {
    SHARDMESH_TRY(begin_call(*e, options));
    all[static_cast<std::size_t>(rank_)].assign(bytes.begin(), bytes.end());
    const frame head{frame_kind::gather, 0, bytes.size()};
    for (std::int32_t peer = 0; peer < size_; ++peer)
      if (peer != rank_) want(peer, {e, head, {}, &all[static_cast<std::size_t>(peer)]});
    for (std::int32_t peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || poison_) continue;
      e->takers.push_back(peer);
      of(peer).sends.push_back({e, head, bytes});
      push(peer);
    }
    return wait_for(locked, *e);
  }));
  return all;
}

bool engine::would_not_block(const exchange& e) {
  if (is_forked()) return true;  // `wait` returns an error
  locker locked(lock_);
  static_cast<void>(guarded(locked, e, [&]() -> result<void> { return progress(), result<void>(); }));
  return e.is_over() || poison_ || e.limits.reached() != errc::ok;
}

result<void> engine::wait(exchange& e) {
  if (is_forked()) return of_another_process();
  locker locked(lock_);
  return guarded(locked, e, [&] { return wait_for(locked, e); });
}

// Returns a peer that the exchange waits for but that has left or died, or nothing.
std::optional<std::int32_t> engine::missing_of(const exchange& e, bool looks_at_life) const {
  for (const auto* list : {&e.senders, &e.takers})
    for (const std::int32_t peer : *list)
      if (memory_->desk_of(peer).state.load() == presence::left || (looks_at_life && !memory_->is_alive(peer)))
        return peer;
  return std::nullopt;
}

result<void> engine::wait_for(locker& locked, exchange& e) {
  if (e.is_over()) return {};
  const std::stop_callback wake(e.limits.cancel, [this] { memory_->ring_bell(rank_); });
  auto next_watch = clock::now() + watch_interval;
  bool is_stopped = false;
  const counted_thread waits(waiting_);
  while (!e.is_over() && !poison_) {
    // Look for missing ranks before progress: then progress receives all that a missing rank sent before it left.
    const std::uint32_t seen = memory_->desk_of(rank_).bell.load();
    const auto now = clock::now();
    const bool is_time = now >= next_watch;
    const auto missing = missing_of(e, is_time);
    if (is_time) next_watch = now + watch_interval;
    if (progress() || e.is_over()) continue;
    if (is_time && goes_on_) {  // called without the lock, because it may take locks of its own
      locked.unlock();
      try {
        is_stopped = !goes_on_() || is_stopped;
      } catch (...) {
        locked.lock();
        throw;
      }
      locked.lock();
      if (e.is_over()) break;
    }
    if (const errc ended = is_stopped ? errc::cancelled : e.limits.reached(now); ended != errc::ok) {
      poison(ended_wait(e, ended, e.senders, e.takers));
    } else if (missing) {
      const bool left = memory_->desk_of(*missing).state.load() == presence::left;
      poison(fail(errc::communication,
                  fmt::format("rank {} waits for rank {}, {}, in {} (tag {})", rank_, *missing,
                              left ? "which has destroyed the communicator" : "whose process has ended", part_of(e),
                              e.tag))
                 .with_rank(*missing));
    } else {
      const auto until = e.limits.deadline ? std::min(next_watch, *e.limits.deadline) : next_watch;
      locked.unlock();
      memory_->wait_for_bell(rank_, seen, until);
      locked.lock();
    }
  }
  if (e.is_over()) return {};
  return *poison_;
}

void engine::abort(const error& reason) {
  if (is_forked()) return;
  const locker locked(lock_);
  error mine;
  mine.code = reason.code;
  try {
    error copy = reason;
    if (copy.ranks.empty()) copy.ranks.push_back(rank_);
    mine = std::move(copy);
  } catch (const std::bad_alloc&) {  // `mine` keeps only the code
  }
  poison(std::move(mine));
}

result<void> engine::status() {
  if (is_forked()) return of_another_process();
  locker locked(lock_);
  const exchange none;
  SHARDMESH_TRY(guarded(locked, none, [&]() -> result<void> { return progress(), result<void>(); }));
  if (poison_) return *poison_;
  return {};
}

}  // namespace shardmesh::shared_memory
