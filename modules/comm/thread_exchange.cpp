// SPDX-License-Identifier: Apache-2.0
// Starts messages between the threads of a group. Their ends meet in `message_ends`; `thread_waits` has the waiting.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

import :message_ends;
import :thread_state;

namespace shardmesh {
namespace {

using guard = std::unique_lock<std::mutex>;

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

}  // namespace shardmesh
