// SPDX-License-Identifier: Apache-2.0
// The group of threads: waiting, all_gather, and poisoning. Messages are in thread_exchange.cpp.
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <process_token.hpp>
#include <shardmesh/assert.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.comm;

import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;
using clock = std::chrono::steady_clock;
using gathered = std::vector<std::vector<std::byte>>;

constexpr std::size_t named_ranks = 16;

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

std::vector<std::int32_t> missing_ranks(const gathering& g) {
  std::vector<std::int32_t> ranks;
  for (std::size_t r = 0; r < g.came.size(); ++r)
    if (!g.came[r]) ranks.push_back(static_cast<std::int32_t>(r));
  return ranks;
}

constexpr const char* gather_part = "an all_gather";

// Makes the error of an all_gather that a limit ended while it waited.
error ended_wait(thread_state& group, const gathering& g, const detail::call_identity& call,
                 const detail::call_limits& limits, errc ended) {
  error problem = detail::ended_wait(call, limits, ended, missing_ranks(g));
  if (ended == errc::deadline_exceeded) problem.found = group.doing(problem.ranks);
  return problem;
}

// Returns a rank that has left without joining the gathering, or nothing.
std::optional<std::int32_t> deserter(const thread_state& group, const gathering& g) {
  for (std::size_t r = 0; r < g.came.size(); ++r)
    if (!g.came[r] && group.desks[r].left) return static_cast<std::int32_t>(r);
  return std::nullopt;
}

}  // namespace

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

thread_state::thread_state(std::int32_t ranks)
    : size(ranks),
      most_looks(static_cast<std::uint32_t>(ranks) <= std::thread::hardware_concurrency() ? patient_looks
                                                                                          : least_looks),
      desks(static_cast<std::size_t>(ranks)),
      channels(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
      maker(detail::process_token()) {
  for (rank_desk& d : desks) {
    d.seen.resize(static_cast<std::size_t>(ranks));
    d.looks = most_looks;
  }
}

bool thread_state::is_forked() const {
  return maker != detail::process_token();
}

error thread_state::of_another_process(std::int32_t rank) const {
  return detail::of_another_process(rank, "make a group in the child, or make the call in the parent");
}

void thread_state::set_poison(error reason, std::int32_t rank) {
  if (poison) return;
  poison = std::move(reason);
  poisoned_by = rank;
  for (rank_desk& d : desks) d.signal();
}

result<detail::call_limits> thread_state::begin_call(std::int32_t rank, const call_options& options, const char* part) {
  return detail::begin_call({rank, part, options.name, options.tag}, options, detail::stream_policy::refused, poison,
                            [&](error reason) { set_poison(std::move(reason), rank); });
}

std::string thread_state::doing(std::span<const std::int32_t> ranks) {
  std::string text;
  for (const std::int32_t rank : ranks.first(std::min(ranks.size(), named_ranks))) {
    const rank_desk& d = desk(rank);
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", rank, d.left ? "has left the group" : d.trace.now());
  }
  if (ranks.size() > named_ranks)
    text += fmt::format(", and {}", detail::counted(ranks.size() - named_ranks, "more rank"));
  return text;
}

result<gathered> thread_state::all_gather(std::int32_t rank, std::span<const std::byte> bytes,
                                          const call_options& options) {
  if (is_forked()) return of_another_process(rank);
  const auto wake_up = [&] {
    const guard locked(lock);
    desk(rank).signal();
  };
  const std::stop_callback wake(options.cancel, wake_up);
  guard locked(lock);
  SHARDMESH_TRY(const detail::call_limits limits, begin_call(rank, options, gather_part));
  if (!gather) {
    gather = std::make_shared<gathering>();
    gather->parts.resize(desks.size());
    gather->came.resize(desks.size());
    gather->missing = size;
  }
  const std::shared_ptr<gathering> mine = gather;
  const auto place = static_cast<std::size_t>(rank);
  if (mine->came[place])
    return fail(errc::invalid_argument, "all_gather was called while an all_gather of the same rank is running")
        .with_rank(rank)
        .with_hint("wait for the first call to return");
  const std::uint64_t event = desk(rank).trace.begin("all_gather", options.tag, 0, 0, options.name);
  mine->parts[place].assign(bytes.begin(), bytes.end());
  mine->came[place] = true;
  if (--mine->missing == 0) {
    gather = nullptr;  // the next call begins a new one
    for (rank_desk& d : desks) d.signal();
  }
  while (mine->missing != 0) {
    if (poison) return *poison;
    if (const errc ended = limits.reached(); ended != errc::ok)
      set_poison(ended_wait(*this, *mine, {rank, gather_part, options.name, options.tag}, limits, ended), rank);
    else if (const auto gone = deserter(*this, *mine))
      set_poison(fail(errc::communication, fmt::format("rank {} waits in {} for rank {}, which has left the group",
                                                       rank, detail::part_of_call(gather_part, options.name), *gone))
                     .with_rank(*gone),
                 rank);
    else
      desk(rank).wait(locked, options.within, most_looks);
  }
  desk(rank).trace.end(event);
  locked.unlock();
  return mine->parts;  // complete, so no thread writes to it any more
}

std::int32_t thread_communicator::size() const {
  return state_->size;
}

result<gathered> thread_communicator::all_gather(std::span<const std::byte> bytes, const call_options& options) {
  return state_->all_gather(rank_, bytes, options);
}

result<pending> thread_communicator::start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                    const call_options& options) {
  SHARDMESH_TRY(thread_exchange* const started, start(state_, rank_, sends, receives, options));
  if (started == nullptr) return pending();
  return pending(std::unique_ptr<pending::operation>(&started->as_pending));
}

result<lending> thread_communicator::start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                                   const call_options& options) {
  SHARDMESH_TRY(thread_exchange* const started, start(state_, rank_, lends, borrows, options));
  if (started == nullptr) return lending();
  return lending(std::unique_ptr<lending::operation>(&started->as_lending));
}

namespace {

// The message group of a communicator. It holds a copy, which lives as long as the collectives need it.
message_group messages_of(const thread_communicator& comm) {
  return {comm.rank(), comm.size(),
          [copy = comm](std::span<const outgoing> sends, std::span<const incoming> receives,
                        const call_options& options) mutable { return copy.start_exchange(sends, receives, options); },
          [copy = comm](const error& reason) mutable { copy.abort(reason); }};
}

}  // namespace

result<pending> thread_communicator::all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                                     const call_options& options) {
  return all_gather_into_by_messages(messages_of(*this), send, receive, options);
}

result<pending> thread_communicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                                                const call_options& options) {
  return all_to_all_by_messages(messages_of(*this), send, receive, options);
}

result<pending> thread_communicator::reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive,
                                                    dtype type, reduce_op op, const call_options& options) {
  return reduce_scatter_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> thread_communicator::all_reduce(std::span<const std::byte> send, std::span<std::byte> receive,
                                                dtype type, reduce_op op, const call_options& options) {
  return all_reduce_by_messages(messages_of(*this), send, receive, type, op, options);
}

result<pending> thread_communicator::broadcast(std::span<const std::byte> send, std::span<std::byte> receive,
                                               std::int32_t root, const call_options& options) {
  return broadcast_by_messages(messages_of(*this), send, receive, root, options);
}

object_numbers thread_communicator::numbers() const {
  return state_->desk(rank_).numbers;
}

void thread_communicator::abort(const error& reason) {
  if (state_->is_forked()) return;
  const guard locked(state_->lock);
  state_->set_poison(reason, rank_);
}

// In a forked child the state is leaked: destroying a condition variable waits for the threads that waited at the fork.
thread_group::thread_group(std::int32_t size)
    : state_(new thread_state(size), [](thread_state* state) {
        if (!state->is_forked()) delete state;
      }) {
  SHARDMESH_ASSERT(size >= 1);
}

std::int32_t thread_group::size() const {
  return state_->size;
}

thread_communicator thread_group::communicator(std::int32_t rank) const {
  SHARDMESH_ASSERT(rank >= 0 && rank < size());
  return {state_, rank};
}

void thread_group::leave(std::int32_t rank) const {
  if (state_->is_forked()) return;
  const guard locked(state_->lock);
  state_->desk(rank).left = true;
  for (std::int32_t other = 0; other < state_->size; ++other) {
    // Ranks in all_gather detect the departure themselves; this loop finds the ranks with pending messages.
    const auto waiting = [&](const channel& line, bool sends) {
      for (const message_end* end = line.first; end != nullptr; end = end->next)
        if (end->sends == sends) return true;
      return false;
    };
    if (waiting(state_->between(rank, other), false) || waiting(state_->between(other, rank), true))
      state_->set_poison(
          fail(errc::communication, fmt::format("rank {} waits for rank {}, which has left the group", other, rank))
              .with_rank(rank),
          other);
    state_->desk(other).signal();
  }
}

result<void> thread_group::status() const {
  if (state_->is_forked()) return state_->of_another_process(0);
  const guard locked(state_->lock);
  if (!state_->poison) return {};
  return detail::reported_by(*state_->poison, state_->poisoned_by);
}

std::string thread_group::trace() const {
  if (state_->is_forked()) return "the ranks belong to the process that forked this one\n";
  const guard locked(state_->lock);
  std::string text;
  for (std::int32_t rank = 0; rank < state_->size; ++rank)
    text += fmt::format("rank {}: {}; {}\n", rank, state_->desk(rank).left ? "left" : state_->desk(rank).trace.now(),
                        state_->desk(rank).trace.history());
  return text;
}

}  // namespace shardmesh
