// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.comm;

import :message_ends;
import :thread_state;

namespace shardmesh {
namespace {

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

void set_busy(message_end& end) {
  for (message_end* one : {&end, end.twin}) {
    one->state = end_state::busy;
    ++one->owner->busy;
  }
}

void complete(thread_state& group, message_end& end) {
  for (message_end* one : {&end, end.twin}) {
    thread_exchange& owner = *one->owner;
    one->state = end_state::done;
    --owner.busy;
    --owner.open;
    if (owner.open == 0 || (owner.busy == 0 && group.poison)) group.desk(owner.rank).signal();
  }
}

bool copy_one(thread_exchange& e, std::unique_lock<std::mutex>& locked, std::size_t limit) {
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

}  // namespace shardmesh
