// SPDX-License-Identifier: Apache-2.0
// Messages between the threads of a group: matching the two ends, copying, and waiting.
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;

constexpr std::size_t small_bytes = std::size_t{64} << 10;  // up to this size, the second rank to start copies at once

// One message of an exchange or a lending, in either direction.
struct part {
  std::int32_t peer = 0;
  std::int64_t size = 0;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  const lender* pieces = nullptr;
};

part part_of(const outgoing& m) {
  return {m.peer, static_cast<std::int64_t>(m.bytes.size()), m.bytes.data(), nullptr, nullptr};
}
part part_of(const incoming& m) {
  return {m.peer, static_cast<std::int64_t>(m.bytes.size()), nullptr, m.bytes.data(), nullptr};
}
part part_of(const lent& m) {
  return {m.peer, m.size_bytes, nullptr, nullptr, m.pieces};
}
part part_of(const borrowed& m) {
  return {m.peer, m.size_bytes, nullptr, nullptr, nullptr};
}

// Checks the messages of one direction: each peer is another rank of the group and named once; no message is empty.
template <class Message>
result<void> check_peers(thread_state& group, std::int32_t rank, std::span<const Message> messages, const char* verb) {
  rank_desk& desk = group.desk(rank);
  const std::uint64_t list = ++desk.lists;
  const auto problem = [&](const std::string& what, std::int32_t peer) {
    return fail(errc::invalid_argument, fmt::format("rank {} {} {}", rank, verb, what)).with_rank(peer);
  };
  for (const Message& message : messages) {
    const part m = part_of(message);
    if (m.peer == rank) return problem("itself", m.peer);
    if (m.peer < 0 || m.peer >= group.size)
      return problem(fmt::format("rank {}, but the group has {}", m.peer, detail::counted(group.size, "rank")), m.peer);
    if (m.size <= 0) return problem(fmt::format("rank {}, but the message is empty", m.peer), m.peer);
    std::uint64_t& met = desk.seen[static_cast<std::size_t>(m.peer)];
    if (met == list) return problem(fmt::format("rank {} twice in one call", m.peer), m.peer);
    met = list;
  }
  return {};
}

error mismatch(const message_end& a, const message_end& b) {
  const message_end& sender = a.sends ? a : b;
  const message_end& receiver = a.sends ? b : a;
  const std::int32_t from = sender.owner->rank, to = receiver.owner->rank;
  if (a.is_lent != b.is_lent)
    return fail(errc::communication, fmt::format("one of ranks {} and {} lends memory, the other exchanges messages "
                                                 "(tag {})",
                                                 from, to, sender.owner->tag))
        .with_rank(from)
        .with_rank(to);
  return fail(errc::communication, fmt::format("a message from rank {} to rank {} has different sizes on the two sides "
                                               "(tag {})",
                                               from, to, sender.owner->tag))
      .with_rank(from)
      .with_rank(to)
      .with_values(detail::counted(receiver.size, "byte") + " by the receiver",
                   detail::counted(sender.size, "byte") + " sent");
}

// Matches an end with the oldest counterpart that waits for it, or else queues it.
void meet(thread_state& group, message_end& end) {
  thread_exchange& owner = *end.owner;
  channel& line = group.between(end.sends ? owner.rank : end.peer, end.sends ? end.peer : owner.rank);
  message_end* other = line.first;
  while (other != nullptr && other->owner->tag != owner.tag) other = other->next;
  if (other == nullptr || other->sends == end.sends) {
    line.push_back(end);
    if (group.desk(end.peer).left)
      group.set_poison(
          fail(errc::communication, fmt::format("rank {} waits for rank {}, which has left the group (tag {})",
                                                owner.rank, end.peer, owner.tag))
              .with_rank(end.peer),
          owner.rank);
    return;
  }
  line.remove(*other);
  if (other->size != end.size || other->is_lent != end.is_lent) {
    // Neither end is in the channel any more; both owners will find the poison.
    group.set_poison(mismatch(end, *other), owner.rank);
    other->state = end.state = end_state::done;
    return;
  }
  end.twin = other;
  other->twin = &end;
  end.state = other->state = end_state::matched;
  const std::size_t unmatched = --(end.sends ? *other : end).owner->unmatched;
  // Wakes a peer that can act now: it can read a complete lending, or copy a message that this rank does not copy at
  // once.
  if (end.is_lent ? end.sends && unmatched == 0 : end.size > small_bytes) group.desk(end.peer).signal();
}

// Returns a message of this exchange that can be copied now, or null. Receives come before sends.
message_end* claimable(thread_exchange& e, std::size_t limit) {
  const auto usable = [&](const message_end& end) {
    return end.state == end_state::matched && !end.is_lent && end.size <= limit;
  };
  const auto sends_end = e.ends.begin() + static_cast<std::ptrdiff_t>(e.sends);
  auto found = std::find_if(sends_end, e.ends.end(), usable);
  if (found == e.ends.end()) {
    found = std::find_if(e.ends.begin(), sends_end, usable);
    if (found == sends_end) return nullptr;
  }
  return &*found;
}

void set_busy(message_end& end) {
  for (message_end* one : {&end, end.twin}) {
    one->state = end_state::busy;
    ++one->owner->busy;
  }
}

// Marks both ends of a message as done, and wakes the owners that were waiting for that.
void complete(thread_state& group, message_end& end) {
  for (message_end* one : {&end, end.twin}) {
    thread_exchange& owner = *one->owner;
    one->state = end_state::done;
    --owner.busy;
    --owner.open;
    if (owner.open == 0 || (owner.busy == 0 && group.poison)) group.desk(owner.rank).signal();
  }
}

// Copies one message, with the lock released. Returns false when there is none to copy.
bool copy_one(thread_exchange& e, guard& locked, std::size_t limit = SIZE_MAX) {
  thread_state& group = *e.group;
  if (group.poison) return false;
  message_end* const end = claimable(e, limit);
  if (end == nullptr) return false;
  set_busy(*end);
  const message_end& receiver = end->sends ? *end->twin : *end;
  locked.unlock();
  std::memcpy(receiver.to, receiver.twin->from, receiver.size);
  enter(locked);
  complete(group, *end);
  return true;
}

// Takes an exchange out of the group after an error: no thread touches its buffers from then on.
void detach(thread_exchange& e, guard& locked) {
  thread_state& group = *e.group;
  group.desk(e.rank).changed.wait(locked, [&] { return e.busy == 0; });
  for (message_end& end : e.ends) {
    if (end.state == end_state::waiting && end.owner != nullptr)
      group.between(end.sends ? e.rank : end.peer, end.sends ? end.peer : e.rank).remove(end);
    if (end.state == end_state::matched) end.twin->state = end_state::done;  // its owner will find the poison
    end.state = end_state::done;
  }
  e.open = 0;
}

// Makes the error of an exchange that a limit ended while it waited.
error ended_wait(thread_exchange& e, errc ended) {
  std::vector<std::int32_t> senders, takers;
  for (const message_end& end : e.ends)
    if (end.state == end_state::waiting) (end.sends ? takers : senders).push_back(end.peer);
  error problem =
      detail::ended_wait({e.rank, e.part, e.call, e.tag}, e.limits, ended, std::move(senders), std::move(takers));
  if (ended == errc::deadline_exceeded) problem.found = e.group->doing(problem.ranks);
  return problem;
}

// Waits until `over()` is true, and copies messages meanwhile. The error is the group's poison.
template <class Over>
result<void> wait_until(thread_exchange& e, guard& locked, const Over& over) {
  thread_state& group = *e.group;
  rank_desk& desk = group.desk(e.rank);
  while (!over()) {
    if (group.poison) return *group.poison;
    if (copy_one(e, locked)) continue;
    if (const errc ended = e.limits.reached(); ended != errc::ok)
      group.set_poison(ended_wait(e, ended), e.rank);
    else
      desk.wait(locked, e.limits.deadline, group.most_looks);
  }
  return {};
}

// Wakes the rank when the call is cancelled. Make and destroy it without holding the lock.
class cancel_wake {
 public:
  cancel_wake(const std::stop_token& token, thread_state& group, std::int32_t rank)
      : wake_(token, waker{&group, rank}) {}

 private:
  struct waker {
    thread_state* group;
    std::int32_t rank;
    void operator()() const {
      const guard locked(group->lock);
      group->desk(rank).signal();
    }
  };
  std::stop_callback<waker> wake_;
};

result<void> wait_for_all(thread_exchange& e, guard& locked) {
  auto done = wait_until(e, locked, [&] { return e.open == 0; });
  if (!done) detach(e, locked);
  e.group->desk(e.rank).trace.end(e.event);
  return done;
}

// Ends this rank's reading of borrowed pieces: their owners may change them again.
void finish_reading(thread_exchange& e) {
  if (!e.reading) return;
  e.reading = false;
  for (std::size_t i = e.sends; i < e.ends.size(); ++i) complete(*e.group, e.ends[i]);
}

bool would_not_block(thread_exchange& e, bool over) {
  return over || e.group->poison || e.limits.reached() != errc::ok;
}

bool is_done(thread_exchange& e) {
  guard locked = enter(*e.group);
  static_cast<void>(copy_one(e, locked));
  return would_not_block(e, e.open == 0);
}

template <class Out, class In>
result<thread_exchange*> start_any(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                                   std::span<const Out> sends, std::span<const In> receives,
                                   const call_options& options, bool lends) {
  if (group->is_forked()) return group->of_another_process(rank);
  guard locked = enter(*group);
  const char* const part_name = lends ? "a lending" : "an exchange";
  SHARDMESH_TRY(detail::call_limits limits, group->begin_call(rank, options, part_name));
  SHARDMESH_TRY(check_peers(*group, rank, sends, lends ? "lends to" : "sends to"));
  SHARDMESH_TRY(check_peers(*group, rank, receives, lends ? "borrows from" : "receives from"));
  if (sends.empty() && receives.empty()) return nullptr;
  rank_desk& desk = group->desk(rank);
  thread_exchange* idle = desk.take_idle();
  if (idle == nullptr) idle = desk.owned.emplace_back(std::make_unique<thread_exchange>()).get();
  thread_exchange& e = *idle;
  e.group = group;
  e.rank = rank;
  e.tag = options.tag;
  e.part = part_name;
  e.call = options.name;
  e.limits = std::move(limits);
  e.sends = sends.size();
  e.open = sends.size() + receives.size();
  e.unmatched = receives.size();
  e.busy = 0;
  e.reading = false;
  e.ends.clear();
  e.ends.reserve(e.open);
  std::int64_t size_bytes = 0;
  const auto add = [&](const part& m, bool is_send) {
    message_end& end = e.ends.emplace_back();
    end.owner = &e;
    end.peer = m.peer;
    end.sends = is_send;
    end.size = static_cast<std::size_t>(m.size);
    end.from = m.from;
    end.to = m.to;
    end.pieces = m.pieces;
    end.is_lent = lends;
    size_bytes = checked_add(size_bytes, m.size).value_or(INT64_MAX);
  };
  for (const Out& m : sends) add(part_of(m), true);
  for (const In& m : receives) add(part_of(m), false);
  e.event =
      desk.trace.begin(lends ? "lending" : "exchange", e.tag, static_cast<std::int32_t>(e.open), size_bytes, e.call);
  for (message_end& end : e.ends) meet(*group, end);
  while (copy_one(e, locked, small_bytes)) {
  }
  return &e;
}

}  // namespace

void channel::push_back(message_end& end) {
  end.next = nullptr;
  end.previous = last;
  (last != nullptr ? last->next : first) = &end;
  last = &end;
}

void channel::remove(message_end& end) {
  (end.previous != nullptr ? end.previous->next : first) = end.next;
  (end.next != nullptr ? end.next->previous : last) = end.previous;
  end.next = end.previous = nullptr;
}

result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const outgoing> sends, std::span<const incoming> receives,
                               const call_options& options) {
  return start_any(group, rank, sends, receives, options, false);
}

result<thread_exchange*> start(const std::shared_ptr<thread_state>& group, std::int32_t rank,
                               std::span<const lent> lends, std::span<const borrowed> borrows,
                               const call_options& options) {
  return start_any(group, rank, lends, borrows, options, true);
}

void thread_exchange::recycle() {
  const auto keep = std::move(group);  // keeps the group, which owns this object, alive until the function returns
  limits.cancel = {};
  keep->desk(rank).give_back(*this);
}

bool thread_exchange::pending_face::done() {
  if (self.group->is_forked()) return true;  // `wait` returns an error
  return is_done(self);
}

result<void> thread_exchange::pending_face::wait() {
  if (self.group->is_forked()) return self.group->of_another_process(self.rank);
  const cancel_wake wake(self.limits.cancel, *self.group, self.rank);
  guard locked = enter(*self.group);
  return wait_for_all(self, locked);
}

bool thread_exchange::lending_face::ready() {
  if (self.group->is_forked()) return true;  // `wait_ready` returns an error
  const guard locked = enter(*self.group);
  return would_not_block(self, self.unmatched == 0);
}

result<void> thread_exchange::lending_face::wait_ready() {
  if (self.group->is_forked()) return self.group->of_another_process(self.rank);
  const cancel_wake wake(self.limits.cancel, *self.group, self.rank);
  guard locked = enter(*self.group);
  SHARDMESH_TRY(wait_until(self, locked, [&] { return self.unmatched == 0; }));
  if (self.group->poison) return *self.group->poison;  // a lender may be gone
  if (self.reading) return {};
  self.reading = true;
  for (std::size_t i = self.sends; i < self.ends.size(); ++i) set_busy(self.ends[i]);
  return {};
}

bool thread_exchange::lending_face::interrupted() {
  if (self.group->is_forked()) return true;
  const guard locked = enter(*self.group);
  return self.group->poison.has_value() || self.limits.cancel.stop_requested();
}

void thread_exchange::lending_face::give_back() {
  if (!self.reading || self.group->is_forked()) return;
  const guard locked = enter(*self.group);
  finish_reading(self);
}

bool thread_exchange::lending_face::done() {
  if (self.group->is_forked()) return true;  // `wait` returns an error
  const guard locked = enter(*self.group);
  return would_not_block(self, self.open == 0);
}

result<void> thread_exchange::lending_face::wait() {
  if (self.group->is_forked()) return self.group->of_another_process(self.rank);
  const cancel_wake wake(self.limits.cancel, *self.group, self.rank);
  guard locked = enter(*self.group);
  finish_reading(self);
  // This rank gives up before reading anything: the lenders must not wait for it.
  bool never_read = false;
  for (std::size_t i = self.sends; i < self.ends.size(); ++i) never_read |= self.ends[i].state != end_state::done;
  if (never_read && !self.group->poison)
    self.group->set_poison(
        fail(errc::communication,
             fmt::format("rank {} stopped lending its memory before it was read (tag {})", self.rank, self.tag))
            .with_rank(self.rank),
        self.rank);
  SHARDMESH_TRY(wait_for_all(self, locked));
  // All lent pieces are back, but a reader that failed gave them back unread.
  if (self.group->poison) return *self.group->poison;
  return {};
}

}  // namespace shardmesh
