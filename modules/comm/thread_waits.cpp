// SPDX-License-Identifier: Apache-2.0
// Waiting for messages between threads: the faces of a started exchange or lending, with which its user waits for it.
// Starting is in `thread_exchange`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
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

import :message_ends;
import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;

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

}  // namespace

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
