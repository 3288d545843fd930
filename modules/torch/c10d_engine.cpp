// SPDX-License-Identifier: Apache-2.0
// The calls of an engine: starting exchanges, and waiting for them.
module;
#include <process_token.hpp>
#include <shardmesh/try.hpp>
#include <torch/c10d_channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.comm;
import :c10d_engine;

namespace shardmesh::c10d_detail {
namespace {

using clock = std::chrono::steady_clock;

// Names the call, and its part, in errors.
std::string name_of(const exchange& e) {
  return detail::part_of_call(e.part, e.call) + " (tag " + std::to_string(e.tag) + ")";
}
std::string name_of(bool is_gather, const char* call, std::uint32_t tag) {
  return detail::part_of_call(is_gather ? "an all_gather" : "an exchange", call) + " (tag " + std::to_string(tag) + ")";
}

errc code_of(const std::exception& problem) {
  return dynamic_cast<const std::bad_alloc*>(&problem) != nullptr ? errc::no_memory : errc::communication;
}

}  // namespace

bool engine::is_forked() const {
  return !maker_.is_this();
}

error engine::of_another_process() const {
  return detail::of_another_process(rank(), "make the call in the parent");
}

template <class Work>
auto engine::guarded(const exchange& e, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& problem) {
    error reason;
    reason.code = code_of(problem);
    try {
      reason =
          fail(reason.code, "rank " + std::to_string(rank()) + " cannot continue in " + name_of(e)).with_rank(rank());
      reason.found = problem.what();
    } catch (const std::bad_alloc&) {  // the error has only its code
    }
    poison(std::move(reason), true);
    return *poison_;
  }
}

error engine::channel_problem(const std::exception& problem, const char* verb, std::int32_t peer,
                              const message_name& name) const noexcept {
  error made;
  made.code = code_of(problem);
  try {
    std::string what = "the process group failed on rank " + std::to_string(rank()) + ", which " + verb +
                       (peer < 0 ? " any rank" : " rank " + std::to_string(peer));
    if (name.kind == record_kind::message || name.kind == record_kind::gather)
      what += " in " + name_of(name.kind == record_kind::gather, name.call.data(), name.tag);
    made = fail(made.code, std::move(what));
    if (peer >= 0) made.ranks.push_back(peer);
    const std::string_view text = problem.what();  // later lines are locations in LibTorch's source
    made.found = text.substr(0, text.find('\n'));
  } catch (const std::bad_alloc&) {  // the error has only its code
  }
  return made;
}

error engine::let_go(std::int32_t peer) const {
  return fail(errc::communication, "rank " + std::to_string(rank()) + " waits for rank " + std::to_string(peer) +
                                       ", which has destroyed the communicator")
      .with_rank(peer);
}

// Sets the limits of `e`.
result<void> engine::begin_call(exchange& e, const call_options& options) {
  SHARDMESH_TRY(e.limits, detail::begin_call(identity_of(e), options, detail::stream_policy::refused, poison_,
                                             [&](error reason) { poison(std::move(reason), true); }));
  return {};
}

result<std::shared_ptr<exchange>> engine::start(std::span<const outgoing> sends, std::span<const incoming> receives,
                                                const call_options& options) {
  if (is_forked()) return of_another_process();
  const guard locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->call = options.name;
  e->tag = options.tag;
  SHARDMESH_TRY(begin_call(*e, options));
  SHARDMESH_TRY(detail::check_peers(rank(), size(), sends, receives));
  return guarded(*e, [&]() -> result<std::shared_ptr<exchange>> {
    for (const incoming& m : receives) expect(m.peer, false, {e, m.bytes, nullptr});
    for (const outgoing& m : sends) announce(m.peer, record_kind::message, m.bytes, e);
    if (poison_) return *poison_;
    return e;
  });
}

result<std::vector<std::vector<std::byte>>> engine::all_gather(std::span<const std::byte> bytes,
                                                               const call_options& options) {
  if (is_forked()) return of_another_process();
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size()));
  guard locked(lock_);
  const auto e = std::make_shared<exchange>();
  e->part = "an all_gather";
  e->call = options.name;
  e->tag = options.tag;
  SHARDMESH_TRY(begin_call(*e, options));
  all[static_cast<std::size_t>(rank())].assign(bytes.begin(), bytes.end());
  SHARDMESH_TRY(guarded(*e, [&]() -> result<void> {
    for (std::int32_t peer = 0; peer < size(); ++peer)
      if (peer != rank()) expect(peer, true, {e, {}, &all[static_cast<std::size_t>(peer)]});
    for (std::int32_t peer = 0; peer < size(); ++peer)
      if (peer != rank()) announce(peer, record_kind::gather, bytes, e);
    return wait_for(locked, *e);
  }));
  return all;
}

result<void> engine::wait_for(guard& locked, exchange& e) {
  const auto is_over = [&] { return e.is_over() || poison_.has_value(); };
  const detail::call_limits& limits = e.limits;
  if (limits.deadline)
    changed_.wait_until(locked, limits.cancel, *limits.deadline, is_over);
  else
    changed_.wait(locked, limits.cancel, is_over);
  if (e.is_over()) return {};
  // Without poison, only a limit ends the wait.
  if (!poison_) poison(ended_wait(e, limits.cancel.stop_requested() ? errc::cancelled : errc::deadline_exceeded), true);
  return *poison_;
}

error engine::ended_wait(const exchange& e, errc ended) const {
  error problem = detail::ended_wait(identity_of(e), e.limits, ended, e.senders, e.takers);
  if (ended == errc::deadline_exceeded) problem.found = last_heard(problem.ranks);
  return problem;
}

result<void> engine::wait(exchange& e) {
  if (is_forked()) return of_another_process();
  guard locked(lock_);
  return guarded(e, [&] { return wait_for(locked, e); });
}

// Other ranks are known only through their messages, which name the call that sent them.
std::string engine::last_heard(std::span<const std::int32_t> ranks) const {
  constexpr std::size_t most = 16;
  const auto now = clock::now();
  std::string text;
  for (const std::int32_t rank : ranks.first(std::min(ranks.size(), most))) {
    const last_words& last = heard_[static_cast<std::size_t>(rank)];
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    if (!last.at) {
      text += " has never sent a message";
      continue;
    }
    const auto ago = std::chrono::duration_cast<std::chrono::milliseconds>(now - *last.at);
    text += " last sent a message " + std::to_string(ago.count()) + " ms ago, in " +
            detail::part_of_call(last.in_gather ? "an all_gather" : "an exchange", last.call.data());
  }
  return text;
}

bool engine::would_not_block(const exchange& e) {
  if (is_forked()) return true;  // `wait` returns an error
  const guard locked(lock_);
  return e.is_over() || poison_ || e.limits.reached() != errc::ok;
}

void engine::abort(error reason) {
  if (is_forked()) return;
  const guard locked(lock_);
  if (reason.ranks.empty()) reason.ranks.push_back(rank());
  poison(std::move(reason), true);
}

result<void> engine::status() {
  if (is_forked()) return of_another_process();
  const guard locked(lock_);
  if (poison_) return *poison_;
  return {};
}

// Messages under way stay in the engine, because a backend still uses their buffers. The engine's threads end when
// these messages have arrived.
void engine::poison(error reason, bool tells_peers) noexcept {
  if (poison_) return;
  poison_ = std::move(reason);
  lines_.clear();
  changed_.notify_all();
  if (!tells_peers) return;
  try {
    tell_peers();
  } catch (const std::exception&) {  // the others wait until their deadlines
  }
}

void engine::tell_peers() {
  has_told_ = true;
  const std::vector<std::byte> text = to_bytes(*poison_);
  for (std::int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank()) announce(peer, record_kind::poison, text, nullptr);
}

}  // namespace shardmesh::c10d_detail
