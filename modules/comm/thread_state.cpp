// SPDX-License-Identifier: Apache-2.0
// The shared state of the threads of a group: calls, all_gather, and poisoning. Messages are in `thread_exchange`.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
using gathered = std::vector<std::vector<std::byte>>;

constexpr std::size_t named_ranks = 16;

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

thread_state::thread_state(std::int32_t ranks)
    : size(ranks),
      most_looks(most_looks_among(ranks)),
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

}  // namespace shardmesh
