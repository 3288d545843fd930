// SPDX-License-Identifier: Apache-2.0
// The schedule: which rank has the turn, and the errors that end all waits.
module;
#include <fmt/core.h>
#include <time.h>
#include <plural.hpp>
#include <process_token.hpp>
#include <shardmesh/assert.hpp>

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
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.simulation;

import :engine;

namespace shardmesh {
namespace {

using std::chrono::nanoseconds;
using clock = std::chrono::steady_clock;

constexpr std::size_t most_named = 16;

thread_local const simulated_rank* this_rank = nullptr;

}  // namespace

simulation_state::simulation_state(std::int32_t size, const simulation_options& options)
    : options_(options), maker_(detail::process_token()), ranks_(static_cast<std::size_t>(size)) {
  for (std::int32_t rank = 0; rank < size; ++rank) push_ready(rank);
}

simulated_communicator simulation_state::communicator(std::int32_t rank) {
  return {shared_from_this(), rank};
}

bool simulation_state::is_forked() const {
  return maker_ != detail::process_token();
}

bool simulation_state::is_thread_of(std::int32_t rank) const {
  return this_rank == &of(rank);
}

void simulation_state::begin_thread(std::int32_t rank) {
  this_rank = &of(rank);
  simulated_rank& mine = of(rank);
  {
    std::unique_lock<std::mutex> locked(mine.lock);
    mine.changed.wait(locked, [&] { return mine.has_turn; });
    mine.has_turn = false;
  }
  mine.cpu_mark = own_cpu_time();
}

void simulation_state::end_thread(std::int32_t rank) {
  simulated_rank& mine = of(rank);
  const own_work_pause paused(*this, rank);
  mine.traffic.finished = mine.now;
  mine.status = rank_status::ended;
  ++ended_;
  const std::int32_t next = next_turn();
  if (next >= 0) give_turn(next);
}

void simulation_state::give_turn(std::int32_t rank) {
  simulated_rank& next = of(rank);
  {
    const std::unique_lock<std::mutex> locked(next.lock);
    next.has_turn = true;
  }
  next.changed.notify_one();
}

void simulation_state::start() {
  give_turn(next_turn());
}

result<detail::call_limits> simulation_state::begin_call(const detail::call_identity& call,
                                                         const call_options& options) {
  if (is_forked())
    return detail::of_another_process(call.rank, "simulate ranks in the child, or make the call in the parent");
  if (!is_thread_of(call.rank))
    return fail(errc::unsupported, fmt::format("a thread that is not the thread of simulated rank {} calls {}",
                                               call.rank, detail::part_of_call(call.part, call.name)))
        .with_rank(call.rank)
        .with_hint(
            "make the call in the function that simulate_ranks runs; use save and load, not start_save and start_load");
  return detail::begin_call(call, options, detail::stream_policy::refused, poison_,
                            [&](error reason) { set_poison(std::move(reason), call.rank); });
}

void simulation_state::set_poison(error reason, std::int32_t rank) {
  if (poison_) return;
  poison_ = std::move(reason);
  poisoned_by_ = rank;
  for (std::int32_t other = 0; other < size(); ++other)
    if (of(other).status == rank_status::waiting) make_ready(other);
}

void simulation_state::abort(std::int32_t rank, const error& reason) {
  if (is_forked()) return;
  if (is_thread_of(rank)) return set_poison(reason, rank);
  const std::unique_lock<std::mutex> locked(outer_lock_);
  if (outer_abort_) return;
  outer_abort_ = detail::reported_by(reason, rank);
  has_outer_abort_.store(true, std::memory_order_release);
}

void simulation_state::take_outer_abort() {
  if (!has_outer_abort_.load(std::memory_order_acquire)) return;
  const std::unique_lock<std::mutex> locked(outer_lock_);
  set_poison(*outer_abort_, 0);
  has_outer_abort_.store(false, std::memory_order_relaxed);
}

result<void> simulation_state::status() const {
  if (!poison_) return {};
  return detail::reported_by(*poison_, poisoned_by_);
}

simulation_report simulation_state::report() && {
  simulation_report made;
  made.ranks.reserve(ranks_.size());
  for (const simulated_rank& one : ranks_) made.ranks.push_back(one.traffic);
  made.events = std::move(events_);
  return made;
}

void simulation_state::push_ready(std::int32_t rank) {
  simulated_rank& one = of(rank);
  one.status = rank_status::ready;
  one.next_ready = -1;
  (last_ready_ >= 0 ? of(last_ready_).next_ready : first_ready_) = rank;
  last_ready_ = rank;
}

void simulation_state::make_ready(std::int32_t rank) {
  simulated_rank& one = of(rank);
  if (one.is_limited) {
    stoppable_ -= one.is_stoppable ? 1 : 0;
    limited_[one.limited_at] = limited_.back();
    of(limited_.back()).limited_at = one.limited_at;
    limited_.pop_back();
  }
  one.limits = nullptr;
  one.exchange = nullptr;
  push_ready(rank);
}

// Makes the ranks ready whose waits have reached their limits. Reads the clock only if some wait has a limit.
void simulation_state::wake_limited() {
  if (limited_.empty()) return;
  const clock::time_point now = clock::now();
  if (stoppable_ == 0 && now < earliest_) return;
  earliest_ = clock::time_point::max();
  for (std::size_t i = 0; i < limited_.size();) {
    const detail::call_limits& limits = *of(limited_[i]).limits;
    if (limits.reached(now) != errc::ok) {
      make_ready(limited_[i]);  // puts the last one into its place
      continue;
    }
    if (limits.deadline) earliest_ = std::min(earliest_, *limits.deadline);
    ++i;
  }
}

std::int32_t simulation_state::next_turn() {
  take_outer_abort();
  wake_limited();
  if (first_ready_ < 0 && ended_ < size()) {
    std::int32_t first = 0;
    while (of(first).status != rank_status::waiting) ++first;
    set_poison(deadlock(), first);
  }
  const std::int32_t next = first_ready_;
  if (next < 0) return next;
  first_ready_ = of(next).next_ready;
  if (first_ready_ < 0) last_ready_ = -1;
  return next;
}

void simulation_state::hand_over(std::int32_t rank) {
  const std::int32_t next = next_turn();
  if (next == rank) return;
  give_turn(next);
  simulated_rank& mine = of(rank);
  std::unique_lock<std::mutex> locked(mine.lock);
  mine.changed.wait(locked, [&] { return mine.has_turn; });
  mine.has_turn = false;
}

void simulation_state::yield(std::int32_t rank) {
  push_ready(rank);
  hand_over(rank);
}

void simulation_state::wait_turn(const detail::call_identity& call, const detail::call_limits& limits,
                                 const simulated_exchange* exchange) {
  simulated_rank& mine = of(call.rank);
  mine.status = rank_status::waiting;
  mine.call = call;
  mine.exchange = exchange;
  mine.limits = &limits;
  mine.is_stoppable = limits.cancel.stop_possible();  // kept, because it can change while the rank waits
  mine.is_limited = limits.deadline || mine.is_stoppable;
  if (mine.is_limited) {
    stoppable_ += mine.is_stoppable ? 1 : 0;
    mine.limited_at = limited_.size();
    if (limited_.empty()) earliest_ = clock::time_point::max();
    if (limits.deadline) earliest_ = std::min(earliest_, *limits.deadline);
    limited_.push_back(call.rank);
  }
  hand_over(call.rank);
}

std::string simulation_state::waits_text(std::int32_t rank) const {
  const simulated_rank& one = of(rank);
  std::vector<std::int32_t> senders, receivers;
  if (one.exchange != nullptr) {
    for (const simulated_message& end : one.exchange->ends)
      if (end.is_queued) (end.is_send ? receivers : senders).push_back(end.peer);
  } else {
    for (std::int32_t other = 0; other < size(); ++other)
      if (!gather_->came[static_cast<std::size_t>(other)]) senders.push_back(other);
  }
  std::sort(senders.begin(), senders.end());
  std::sort(receivers.begin(), receivers.end());
  std::string text = fmt::format("rank {} waits for ", rank);
  if (!senders.empty()) text += detail::ranks_text(senders);
  if (!senders.empty() && !receivers.empty()) text += ", and for ";
  if (!receivers.empty()) text += detail::ranks_text(receivers) + " to receive its messages";
  return text + fmt::format(" in {} (tag {})", detail::part_of_call(one.call.part, one.call.name), one.call.tag);
}

error simulation_state::deadlock() const {
  error made = fail(errc::communication, "");
  std::string text;
  std::size_t waiting = 0;
  for (std::int32_t rank = 0; rank < size(); ++rank) {
    if (of(rank).status != rank_status::waiting || ++waiting > most_named) continue;
    text += (text.empty() ? "" : "; ") + waits_text(rank);
    made.ranks.push_back(rank);
  }
  if (waiting > most_named) text += fmt::format("; {}", detail::counted(waiting - most_named, "more rank"));
  made.message = fmt::format("no rank can continue, because {} for others and {} returned: {}",
                             waiting == 1 ? "1 rank waits" : fmt::format("{} ranks wait", waiting),
                             ended_ == 1 ? "1 rank has" : fmt::format("{} ranks have", ended_), text);
  made.hint = "start each message on both ranks with the same tag, and each all_gather on every rank";
  return made;
}

nanoseconds simulation_state::own_cpu_time() const {
  if (!options_.count_cpu_time) return {};
  ::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

void simulation_state::spend(std::int32_t rank, nanoseconds length) {
  SHARDMESH_ASSERT(is_thread_of(rank) && length >= nanoseconds::zero());
  of(rank).now = later(of(rank).now, length);
}

own_work_pause::own_work_pause(simulation_state& state, std::int32_t rank) : state_(state), rank_(rank) {
  simulated_rank& mine = state.of(rank);
  mine.now = later(mine.now, state.own_cpu_time() - mine.cpu_mark);
}

own_work_pause::~own_work_pause() {
  state_.of(rank_).cpu_mark = state_.own_cpu_time();
}

}  // namespace shardmesh
