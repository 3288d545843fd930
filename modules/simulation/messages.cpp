// SPDX-License-Identifier: Apache-2.0
// Messages of simulated ranks: how their two ends meet, the bytes, the counts, and the modelled times.
// Modelled times follow from the calls of each rank and not from the schedule.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/assert.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.simulation;

import :engine;

namespace shardmesh {
namespace {

using std::chrono::nanoseconds;

constexpr const char* exchange_part = "an exchange";

// The rank that receives the message of an end, and the rank that sends it.
std::int32_t receiver_of(const simulated_message& end) {
  return end.is_send ? end.peer : end.owner->identity.rank;
}
std::int32_t sender_of(const simulated_message& end) {
  return end.is_send ? end.owner->identity.rank : end.peer;
}

std::uint64_t inbox_key(const simulated_message& end) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(sender_of(end))) << 32 | end.owner->identity.tag;
}

error size_mismatch(const simulated_message& send, const simulated_message& receive) {
  return fail(errc::communication,
              fmt::format("a message from rank {} to rank {} has different sizes on the two sides (tag {})",
                          sender_of(send), receiver_of(send), send.owner->identity.tag))
      .with_rank(sender_of(send))
      .with_rank(receiver_of(send))
      .with_values(detail::counted(receive.size_bytes(), "byte") + " by the receiver",
                   detail::counted(send.size_bytes(), "byte") + " sent");
}

// Makes the error of an exchange that a limit ended while it waited.
error ended_wait(const simulated_exchange& exchange, errc ended) {
  std::vector<std::int32_t> senders, receivers;
  for (const simulated_message& end : exchange.ends)
    if (end.is_queued) (end.is_send ? receivers : senders).push_back(end.peer);
  return detail::ended_wait(exchange.identity, exchange.limits, ended, std::move(senders), std::move(receivers));
}

}  // namespace

void message_queue::push_back(simulated_message& one) {
  one.next = nullptr;
  one.previous = last;
  (last != nullptr ? last->next : first) = &one;
  last = &one;
  one.is_queued = true;
}

void message_queue::remove(simulated_message& one) {
  (one.previous != nullptr ? one.previous->next : first) = one.next;
  (one.next != nullptr ? one.next->previous : last) = one.previous;
  one.next = one.previous = nullptr;
  one.is_queued = false;
}

bool simulated_exchange::done() {
  return group->is_done(*this);
}

result<void> simulated_exchange::wait() {
  return group->wait(*this);
}

void simulation_state::note(simulation_event event) {
  if (options_.trace) events_.push_back(event);
}

// The sender's processor hands the message to its link, which sends it after the earlier ones.
void simulation_state::depart(simulated_exchange& exchange, simulated_message& send) {
  simulated_rank& mine = of(exchange.identity.rank);
  const auto size_bytes = static_cast<std::int64_t>(send.from.size());
  mine.now = later(mine.now, options_.network.overhead);
  const nanoseconds leaves = std::max(mine.now, mine.sends_until);
  mine.sends_until = exchange.departed = later(leaves, options_.network.transfer_time(size_bytes));
  send.arrival = later(leaves, options_.network.latency);
  ++mine.traffic.sent_messages;
  mine.traffic.sent_bytes += size_bytes;
  note({simulation_event::what::sent, exchange.identity.rank, send.peer, exchange.identity.tag, size_bytes, leaves});
}

// Matches an end with the oldest counterpart that waits for it, or else queues it.
void simulation_state::meet(simulated_message& end) {
  auto& inbox = of(receiver_of(end)).inbox;
  message_queue& queue = inbox[inbox_key(end)];
  simulated_message* const other = queue.first;
  if (other == nullptr || other->is_send == end.is_send) return queue.push_back(end);
  simulated_message& send = end.is_send ? end : *other;
  simulated_message& receive = end.is_send ? *other : end;
  if (send.from.size() != receive.to.size()) return set_poison(size_mismatch(send, receive), end.owner->identity.rank);
  queue.remove(*other);
  if (queue.first == nullptr) inbox.erase(inbox_key(end));
  deliver(send, receive);
}

void simulation_state::deliver(simulated_message& send, simulated_message& receive) {
  std::memcpy(receive.to.data(), send.from.data(), send.from.size());
  receive.arrival = send.arrival;
  simulated_rank& receiver = of(receive.owner->identity.rank);
  ++receiver.traffic.received_messages;
  receiver.traffic.received_bytes += static_cast<std::int64_t>(receive.to.size());
  for (simulated_exchange* const owner : {send.owner, receive.owner}) {
    const std::int32_t rank = owner->identity.rank;
    if (--owner->open == 0 && of(rank).status == rank_status::waiting && of(rank).exchange == owner) make_ready(rank);
  }
}

// Takes an exchange out of the simulation after an error: no rank touches its buffers from then on.
void simulation_state::detach(simulated_exchange& exchange) {
  for (simulated_message& end : exchange.ends) {
    if (!end.is_queued) continue;
    auto& inbox = of(receiver_of(end)).inbox;
    const auto found = inbox.find(inbox_key(end));
    found->second.remove(end);
    if (found->second.first == nullptr) inbox.erase(found);
  }
  exchange.open = 0;
}

// Advances the rank's clock over the messages of a finished exchange: those that arrive occupy its link in the order of
// their arrival.
void simulation_state::settle(simulated_exchange& exchange) {
  const std::int32_t rank = exchange.identity.rank;
  simulated_rank& mine = of(rank);
  std::vector<const simulated_message*> arrived;
  for (const simulated_message& end : exchange.ends)
    if (!end.is_send) arrived.push_back(&end);
  std::sort(arrived.begin(), arrived.end(), [](const simulated_message* a, const simulated_message* b) {
    return std::tie(a->arrival, a->peer) < std::tie(b->arrival, b->peer);
  });
  for (const simulated_message* const one : arrived) {
    const auto size_bytes = static_cast<std::int64_t>(one->to.size());
    mine.receives_until =
        later(std::max(one->arrival, mine.receives_until), options_.network.transfer_time(size_bytes));
    mine.now = later(std::max(mine.now, mine.receives_until), options_.network.overhead);
    note({simulation_event::what::received, rank, one->peer, exchange.identity.tag, size_bytes, mine.receives_until});
  }
  mine.now = std::max(mine.now, exchange.departed);
}

result<pending> simulation_state::start_exchange(std::int32_t rank, std::span<const outgoing> sends,
                                                 std::span<const incoming> receives, const call_options& options) {
  const detail::call_identity call{rank, exchange_part, options.name, options.tag};
  SHARDMESH_TRY(detail::call_limits limits, begin_call(call, options));
  const own_work_pause paused(*this, rank);
  SHARDMESH_TRY(detail::check_peers(rank, size(), sends, receives));
  if (sends.empty() && receives.empty()) {
    yield(rank);  // such a call only asks whether another rank has failed
    return pending();
  }
  auto made = std::make_unique<simulated_exchange>(shared_from_this(), call, std::move(limits));
  ++of(rank).traffic.exchanges;
  made->open = sends.size() + receives.size();
  made->ends.reserve(made->open);
  for (const outgoing& one : sends) {
    simulated_message& end = made->ends.emplace_back();
    end.owner = made.get();
    end.peer = one.peer;
    end.is_send = true;
    end.from = one.bytes;
    depart(*made, end);
  }
  for (const incoming& one : receives) {
    simulated_message& end = made->ends.emplace_back();
    end.owner = made.get();
    end.peer = one.peer;
    end.to = one.bytes;
  }
  for (simulated_message& end : made->ends) {
    meet(end);
    if (poison_) break;  // `wait` returns it
  }
  return pending(std::unique_ptr<pending::operation>(std::move(made)));
}

bool simulation_state::would_not_block(const simulated_exchange& exchange) const {
  return exchange.open == 0 || poison_ || exchange.limits.reached() != errc::ok;
}

// Returns a peer that the exchange waits for although its function has returned, or nothing.
std::optional<std::int32_t> simulation_state::returned_peer(const simulated_exchange& exchange) const {
  for (const simulated_message& end : exchange.ends)
    if (end.is_queued && of(end.peer).status == rank_status::ended) return end.peer;
  return std::nullopt;
}

bool simulation_state::is_done(simulated_exchange& exchange) {
  if (is_forked()) return true;  // `wait` returns an error
  const std::int32_t rank = exchange.identity.rank;
  if (exchange.open == 0) return true;
  SHARDMESH_ASSERT(is_thread_of(rank));
  const own_work_pause paused(*this, rank);
  if (would_not_block(exchange)) return true;
  if (const auto gone = returned_peer(exchange)) {
    set_poison(fail(errc::communication, fmt::format("rank {} waits for rank {}, which has returned (tag {})", rank,
                                                     *gone, exchange.identity.tag))
                   .with_rank(*gone),
               rank);
    return true;
  }
  yield(rank);
  return would_not_block(exchange);
}

result<void> simulation_state::wait(simulated_exchange& exchange) {
  const std::int32_t rank = exchange.identity.rank;
  if (is_forked())
    return detail::of_another_process(rank, "simulate ranks in the child, or make the call in the parent");
  // Another thread would change the schedule, and must not return before the ranks are done with the buffers.
  SHARDMESH_ASSERT(is_thread_of(rank));
  const own_work_pause paused(*this, rank);
  while (exchange.open > 0) {
    if (poison_) {
      detach(exchange);
      return *poison_;
    }
    if (const errc ended = exchange.limits.reached(); ended != errc::ok)
      set_poison(ended_wait(exchange, ended), rank);
    else
      wait_turn(exchange.identity, exchange.limits, &exchange);
  }
  settle(exchange);
  return {};
}

}  // namespace shardmesh
