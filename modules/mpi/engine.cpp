// SPDX-License-Identifier: Apache-2.0
// The lifetime and the calls of an engine: starting, waiting, and poisoning.
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :engine;
import :record;
import :session;
import :staged;
import :waiting;

namespace shardmesh::mpi {
namespace {

constexpr std::chrono::milliseconds flush_time{100};
constexpr std::chrono::milliseconds suspect_time{300};  // lets the last records of a peer arrive

const char* part_of(const exchange& e) {
  return e.is_gather ? "an all_gather" : "an exchange";
}

detail::call_identity identity_of(std::int32_t rank, const exchange& e) {
  return {rank, part_of(e), e.call, e.tag};
}

}  // namespace

std::string name_of(const exchange& e) {
  return detail::part_of_call(part_of(e), e.call);
}

engine::~engine() {
  guard_word_ = 0;
  end_transfers();
  if (!is_up()) return;
  const bool whole = control_.has_value() && !poison_;
  if (control_) flush(flush_time);
  control_.reset();
  // The standard makes freeing collective, so a failed communicator is not freed.
  if (whole && abandoned_.is_empty())
    for (MPI_Comm* comm : {&control_comm_, &data_comm_})
      static_cast<void>(succeeds([&] { return MPI_Comm_free(comm); }));
}

error engine::of_another_process() const {
  return detail::of_another_process(rank_, "make the call in the parent");
}

void engine::give_up(guard& locked, const exchange& e, const std::exception& thrown) {
  if (!locked) locked.lock();
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  error reason;
  reason.code = no_memory ? errc::no_memory : errc::communication;
  try {
    reason = fail(reason.code, fmt::format("rank {} {} in {} (tag {})", rank_,
                                           no_memory ? "has no memory left" : "cannot continue", name_of(e), e.tag))
                 .with_rank(rank_);
    if (!no_memory) reason.found = thrown.what();
  } catch (const std::bad_alloc&) {  // `reason` keeps only the code
  }
  poison(std::move(reason), false, true);
}

error engine::failed(error why, const char* verb, std::int32_t peer, const exchange& e) const {
  why.message = fmt::format("rank {} {} rank {} in {} (tag {}): {}", rank_, verb, peer, name_of(e), e.tag, why.message);
  return std::move(why).with_rank(peer);
}

// Ends all transfers. The request of a message that the receiver has acknowledged may still be incomplete. The
// message's staging memory then outlives the engine.
void engine::end_transfers() {
  const auto last = clock::now() + flush_time;
  for (std::deque<transfer>* transfers : {&receiving_, &sending_, &pushing_})
    for (transfer& at : *transfers) {
      if (!at.moving) continue;
      while (is_up() && !at.moving->is_finished() && clock::now() < last) {
        try {
          if (!at.moving->step()) break;
        } catch (const std::bad_alloc&) {  // from making an error's text
          break;
        }
      }
      if (!at.moving->is_finished()) at.moving->abandon(abandoned_);
      at.moving.reset();
    }
}

std::int32_t engine::readable_peers() const {
  return static_cast<std::int32_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const peer_memory& peer) { return peer.is_readable(); }));
}

// Sets the limits of `e`. A missed deadline casts doubt on the peers, a cancellation does not.
result<void> engine::begin_call(exchange& e, const call_options& options) {
  progress();
  SHARDMESH_TRY(e.limits, detail::begin_call(identity_of(rank_, e), options, detail::stream_policy::refused, poison_,
                                             [&](error reason) {
                                               const bool is_late = reason.code == errc::deadline_exceeded;
                                               poison(std::move(reason), is_late, true);
                                             }));
  return {};
}

result<std::shared_ptr<exchange>> engine::start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                const call_options& options) {
  if (is_forked()) return of_another_process();
  guard locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->tag = options.tag;
  e->call = options.name;
  std::int64_t size_bytes = 0;
  const auto count = [&](std::size_t size) {
    size_bytes = checked_add(size_bytes, static_cast<std::int64_t>(size)).value_or(INT64_MAX);
  };
  for (const outgoing& m : sends) count(m.bytes.size());
  for (const incoming& m : receives) count(m.bytes.size());
  return guarded(locked, *e, [&]() -> result<std::shared_ptr<exchange>> {
    SHARDMESH_TRY(begin_call(*e, options));
    SHARDMESH_TRY(detail::check_peers(rank_, size_, sends, receives));
    e->event = trace_.begin("exchange", e->tag, static_cast<std::int32_t>(sends.size() + receives.size()), size_bytes,
                            e->call);
    for (const incoming& m : receives)
      if (!poison_) expect({.peer = m.peer, .bytes = m.bytes, .owner = e});
    for (const outgoing& m : sends)
      if (!poison_) announce({.peer = m.peer, .bytes = m.bytes, .owner = e});
    if (poison_) return *poison_;
    return e;
  });
}

bool engine::would_not_block(const exchange& e) {
  if (is_forked()) return true;  // `wait` returns an error
  guard locked(lock_);
  static_cast<void>(guarded(locked, e, [&]() -> result<void> { return progress(), result<void>(); }));
  return e.open == 0 || poison_ || e.limits.reached() != errc::ok;
}

result<void> engine::wait(exchange& e) {
  if (is_forked()) return of_another_process();
  guard locked(lock_);
  auto done = guarded(locked, e, [&] { return wait_for(locked, e); });
  trace_.end(e.event);
  return done;
}

std::string engine::trace() {
  if (is_forked()) return fmt::format("the communicator of rank {} belongs to the process that forked this one", rank_);
  const guard locked(lock_);
  return fmt::format("rank {}: {}; {}", rank_, trace_.now(), trace_.history());
}

result<void> engine::wait_for(guard& locked, exchange& e) {
  backoff pause;
  auto next_watch = clock::now() + watch_interval;
  for (;;) {
    const bool moved = progress();
    if (e.open == 0) return {};
    if (poison_) return *poison_;
    const auto now = clock::now();
    if (const errc ended = e.limits.reached(now); ended != errc::ok) {
      poison(ended_wait(e, ended), ended == errc::deadline_exceeded, true);
    } else if (now >= next_watch) {
      watch_peers(e);
      next_watch = now + watch_interval;
    }
    if (poison_) return *poison_;
    if (moved) {
      pause.reset();
      continue;
    }
    locked.unlock();
    pause.rest();
    locked.lock();
  }
}

std::vector<std::int32_t> engine::waited_for(const exchange& e, bool sends) const {
  std::vector<std::int32_t> ranks;
  if (sends)
    for (const auto& [id, m] : outgoing_)
      if (m.owner.get() == &e) ranks.push_back(m.peer);
  if (!sends)
    for (const auto& [id, m] : incoming_)
      if (m.owner.get() == &e) ranks.push_back(m.peer);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

error engine::ended_wait(const exchange& e, errc ended) const {
  constexpr std::size_t most = 16;
  error problem = detail::ended_wait(identity_of(rank_, e), e.limits, ended, waited_for(e, false), waited_for(e, true));
  if (ended == errc::deadline_exceeded)
    problem.found = last_heard(std::span(problem.ranks).first(std::min(problem.ranks.size(), most)));
  return problem;
}

// Describes the last known calls of other ranks. Nothing more is known here: each message names the call that sent it.
std::string engine::last_heard(std::span<const std::int32_t> ranks) const {
  const auto now = clock::now();
  std::string text;
  for (const std::int32_t rank : ranks) {
    const last_words& last = heard_[static_cast<std::size_t>(rank)];
    if (!text.empty()) text += ", ";
    if (!last.at) {
      text += fmt::format("rank {} has never sent a message", rank);
      continue;
    }
    text += fmt::format("rank {} last sent a message {:.3g} s ago, in {}", rank,
                        std::chrono::duration<double>(now - *last.at).count(),
                        detail::part_of_call(last.in_gather ? "an all_gather" : "an exchange", last.call.data()));
  }
  return text;
}

// Detects that a rank on this machine has ended or destroyed its communicator, which MPI does not report.
void engine::watch_peers(const exchange& e) {
  std::vector<std::int32_t> ranks = waited_for(e, false);
  const std::vector<std::int32_t> takers = waited_for(e, true);
  ranks.insert(ranks.end(), takers.begin(), takers.end());
  const auto now = clock::now();
  for (const std::int32_t rank : ranks) {
    const peer_memory& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.is_readable() || peer.is_open()) continue;
    const auto since = suspects_.try_emplace(rank, now).first->second;
    if (now - since < suspect_time) continue;
    poison(fail(errc::communication,
                fmt::format("rank {} waits for rank {}, which has ended or destroyed the communicator", rank_, rank))
               .with_rank(rank),
           true, true);
    return;
  }
}

void engine::poison(error reason, bool doubt, bool tell_peers) noexcept {
  if (poison_) return;
  guard_word_ = 0;  // from now on peers that read this rank's memory discard the bytes
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (doubt) session_->doubt();
  std::vector<std::byte> text;
  try {
    text = short_error_bytes(reason);
  } catch (const std::bad_alloc&) {  // the others learn that this rank gave up, but not why
  }
  poison_.emplace(std::move(reason));
  for (std::deque<transfer>* transfers : {&receiving_, &sending_, &pushing_}) {
    for (transfer& at : *transfers)
      if (at.moving) at.moving->abandon(abandoned_);
    transfers->clear();
  }
  reading_.clear();
  to_grant_.clear();
  to_send_.clear();
  lines_.clear();
  incoming_.clear();
  outgoing_.clear();
  if (!tell_peers) return;
  // A peer that MPI cannot reach finds out at its own deadline.
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      static_cast<void>(control_->send(peer, {.kind = record_kind::stop, .size = doubt ? 1U : 0U}, text));
    } catch (const std::bad_alloc&) {
    }
  }
  flush(flush_time);
}

// Waits until all records have left, for a limited time, because a stopped peer receives none.
void engine::flush(std::chrono::milliseconds most) {
  const auto last = clock::now() + most;
  while (!control_->is_flushed() && clock::now() < last) std::this_thread::yield();
}

void engine::abort(error reason) {
  if (is_forked()) return;
  const guard locked(lock_);
  poison(detail::reported_by(std::move(reason), rank_), false, true);
}

result<void> engine::status() {
  if (is_forked()) return of_another_process();
  guard locked(lock_);
  const exchange none;
  SHARDMESH_TRY(guarded(locked, none, [&]() -> result<void> { return progress(), result<void>(); }));
  if (poison_) return *poison_;
  return {};
}

}  // namespace shardmesh::mpi
