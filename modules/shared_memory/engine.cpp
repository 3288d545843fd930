// SPDX-License-Identifier: Apache-2.0
// The calls of an engine: what a rank starts and how it waits.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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

// How often a wait looks whether the processes it waits for still exist.
constexpr std::chrono::milliseconds watch_interval{50};

std::string part_of(const exchange& e) {
  return detail::part_of_call(e.part, e.call);
}

}  // namespace

engine::engine(std::shared_ptr<segment> memory, std::int32_t rank, std::function<bool()> goes_on)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(memory_->size()),
      goes_on_(std::move(goes_on)),
      lines_(static_cast<std::size_t>(size_)) {}

engine::~engine() = default;

result<void> engine::meet(const call_options& options) {
  memory_->ring_all_bells();
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
      if (told && has_left) return *std::move(told);  // it gave up joining
      see_memory();
      return {};
    }
    const auto now = clock::now();
    error problem;
    if (options.cancel.stop_requested())
      problem =
          fail(errc::cancelled, fmt::format("rank {} was cancelled while it joined its group", rank_)).with_rank(rank_);
    else if (options.deadline && now >= *options.deadline)
      problem = waited_in_vain("joining a group of processes", 0, std::move(missing), {});
    else if (auto told = memory_->poison())
      return *std::move(told);
    if (problem.code != errc::ok) {
      memory_->set_poison(problem);
      return problem;
    }
    auto until = now + watch_interval;
    if (options.deadline) until = std::min(until, *options.deadline);
    memory_->wait_for_bell(rank_, seen, until);
  }
}

// Which peers' memory this rank can read; they are told by way of their rings.
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
  const locker locked(lock_);
  memory_->desk_of(rank_).state.store(presence::left);
  memory_->ring_all_bells();
}

error engine::waited_in_vain(std::string_view part, std::uint32_t tag, std::vector<std::int32_t> givers,
                             std::vector<std::int32_t> takers) const {
  constexpr std::size_t most = 16;  // ranks whose doings are told
  error problem = detail::waited_in_vain(rank_, part, tag, std::move(givers), std::move(takers));
  for (const std::int32_t rank : std::span(problem.ranks).first(std::min(problem.ranks.size(), most)))
    problem.found += (problem.found.empty() ? "" : ", ") + memory_->last_call(rank);
  return problem;
}

result<void> engine::check_call(const exchange& e, const call_options& options) {
  progress();
  if (poison_) return *poison_;
  if (options.stream.handle != nullptr)
    return fail(errc::unsupported,
                fmt::format("rank {} gives {} a device stream, which host memory does not have", rank_, part_of(e)))
        .with_rank(rank_);
  if (options.cancel.stop_requested())
    poison(fail(errc::cancelled, fmt::format("rank {} was cancelled before {} (tag {})", rank_, part_of(e), e.tag))
               .with_rank(rank_));
  else if (options.deadline && clock::now() >= *options.deadline)
    poison(fail(errc::deadline_exceeded,
                fmt::format("the deadline had passed before rank {} started {} (tag {})", rank_, part_of(e), e.tag))
               .with_rank(rank_));
  if (poison_) return *poison_;
  if (*options.name != '\0') memory_->note_call(rank_, part_of(e));
  return {};
}

result<std::shared_ptr<exchange>> engine::start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                const call_options& options) {
  const locker locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->call = options.name;
  e->tag = options.tag;
  e->deadline = options.deadline;
  e->cancel = options.cancel;
  SHARDMESH_CHECK(check_call(*e, options));
  SHARDMESH_CHECK(detail::check_peers(rank_, size_, sends, receives));
  for (const incoming& m : receives) want(m.peer, {e, {frame_kind::message, e->tag}, m.bytes, nullptr});
  for (const outgoing& m : sends) {
    if (poison_) break;
    e->takers.push_back(m.peer);
    frame head{frame_kind::message, e->tag, m.bytes.size()};
    if (m.bytes.size() >= lent_bytes && memory_->between(rank_, m.peer).reads_memory()) {
      head.kind = frame_kind::lent;
      head.address = reinterpret_cast<std::uintptr_t>(m.bytes.data());
      head.number = next_lent_++;
    }
    of(m.peer).sends.push_back({e, head, m.bytes});
    push(m.peer);
  }
  if (poison_) return *poison_;
  return e;
}

result<std::vector<std::vector<std::byte>>> engine::all_gather(std::span<const std::byte> bytes,
                                                               const call_options& options) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_));
  locker locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->part = "an all_gather";
  e->call = options.name;
  e->deadline = options.deadline;
  e->cancel = options.cancel;
  SHARDMESH_CHECK(check_call(*e, options));
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
  SHARDMESH_CHECK(wait_for(locked, *e));
  return all;
}

bool engine::would_not_block(const exchange& e) {
  const locker locked(lock_);
  progress();
  return e.is_over() || poison_ || e.cancel.stop_requested() || (e.deadline && clock::now() >= *e.deadline);
}

result<void> engine::wait(exchange& e) {
  locker locked(lock_);
  return wait_for(locked, e);
}

// Of those that it waits for, one that will not come any more.
std::optional<std::int32_t> engine::missing_of(const exchange& e, bool looks_at_life) const {
  for (const auto* list : {&e.givers, &e.takers})
    for (const std::int32_t peer : *list)
      if (memory_->desk_of(peer).state.load() == presence::left || (looks_at_life && !memory_->is_alive(peer)))
        return peer;
  return std::nullopt;
}

result<void> engine::wait_for(locker& locked, exchange& e) {
  if (e.is_over()) return {};
  const std::stop_callback wake(e.cancel, [this] { memory_->ring_bell(rank_); });
  auto next_watch = clock::now() + watch_interval;
  bool is_stopped = false;
  ++waiting_;
  while (!e.is_over() && !poison_) {
    // In this order: what a rank sent before it left is there when its leaving is seen.
    const std::uint32_t seen = memory_->desk_of(rank_).bell.load();
    const auto now = clock::now();
    const bool is_time = now >= next_watch;
    const auto missing = missing_of(e, is_time);
    if (is_time) next_watch = now + watch_interval;
    if (progress() || e.is_over()) continue;
    if (is_time && goes_on_) {  // without the lock: it may take some of its own
      locked.unlock();
      is_stopped = !goes_on_() || is_stopped;
      locked.lock();
      if (e.is_over()) break;
    }
    if (e.cancel.stop_requested() || is_stopped) {
      poison(fail(errc::cancelled, fmt::format("rank {} was cancelled in {} (tag {})", rank_, part_of(e), e.tag))
                 .with_rank(rank_));
    } else if (e.deadline && now >= *e.deadline) {
      poison(waited_in_vain(part_of(e), e.tag, e.givers, e.takers));
    } else if (missing) {
      const bool left = memory_->desk_of(*missing).state.load() == presence::left;
      poison(fail(errc::communication,
                  fmt::format("rank {} waits for rank {}, {}, in {} (tag {})", rank_, *missing,
                              left ? "which has let go of the communicator" : "whose process has ended", part_of(e),
                              e.tag))
                 .with_rank(*missing));
    } else {
      const auto until = e.deadline ? std::min(next_watch, *e.deadline) : next_watch;
      locked.unlock();
      memory_->wait_for_bell(rank_, seen, until);
      locked.lock();
    }
  }
  --waiting_;
  if (e.is_over()) return {};
  return *poison_;
}

void engine::abort(error reason) {
  const locker locked(lock_);
  if (reason.ranks.empty()) reason.ranks.push_back(rank_);
  poison(std::move(reason));
}

result<void> engine::status() {
  const locker locked(lock_);
  progress();
  if (poison_) return *poison_;
  return {};
}

}  // namespace shardmesh::shared_memory
