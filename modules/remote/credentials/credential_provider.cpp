// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.remote;

import :credential_context;

namespace shardmesh::remote {
namespace {

constexpr std::chrono::minutes refresh_margin{5};
// Between two searches while credentials are valid: after a failure, and for credentials that live less than the
// margin.
constexpr std::chrono::seconds pause{30};

// One search, which several threads may wait for.
struct search_outcome {
  bool is_done = false;
  std::optional<error> failed;
};

}  // namespace

struct credential_provider::state {
  explicit state(credential_sources from) : sources(std::move(from)) {}

  wall_time now() const { return sources.clock ? sources.clock() : std::chrono::system_clock::now(); }

  // Whether the kept credentials can be used. Call it with the mutex locked.
  bool is_valid(wall_time at) const { return kept && (!kept->expires || *kept->expires > at); }
  // Whether they should be replaced soon.
  bool is_due(wall_time at) const {
    return kept && kept->expires && *kept->expires - refresh_margin <= at && at >= next_search;
  }

  const credential_sources sources;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::optional<aws_credentials> kept;
  std::shared_ptr<search_outcome> running;  // null: no thread searches
  wall_time next_search{};                  // of a refresh; an expiry does not wait for it
};

credential_provider::credential_provider(credential_sources sources)
    : state_(std::make_unique<state>(std::move(sources))) {}
credential_provider::credential_provider(credential_provider&&) noexcept = default;
credential_provider& credential_provider::operator=(credential_provider&&) noexcept = default;
credential_provider::~credential_provider() = default;

namespace {

// Waits for another thread's search. Returns whether it ended within the limits of the call.
template <class State>
bool wait_for_search(State& state, std::unique_lock<std::mutex>& lock, const search_outcome& search,
                     const call_options& call) {
  const auto is_done = [&] { return search.is_done; };
  if (call.within) return state.changed.wait_until(lock, call.cancel, *call.within, is_done);
  return state.changed.wait(lock, call.cancel, is_done);
}

}  // namespace

result<aws_credentials> credential_provider::credentials(const call_options& call) {
  std::unique_lock lock(state_->mutex);
  for (;;) {
    const wall_time now = state_->now();
    const bool is_valid = state_->is_valid(now);
    if (is_valid && (!state_->is_due(now) || state_->running)) return *state_->kept;
    if (!state_->running) break;
    const std::shared_ptr<search_outcome> search = state_->running;
    if (!wait_for_search(*state_, lock, *search, call)) {
      SHARDMESH_TRY(shardmesh::detail::check_limits(call, "credential search"));
      continue;  // the limit was reached just now
    }
    // The limits of the thread that searched are not those of this call.
    if (search->failed && !is_limit(*search->failed)) return *search->failed;
  }
  const auto search = std::make_shared<search_outcome>();
  state_->running = search;
  lock.unlock();
  result<aws_credentials> found = fail(errc::no_memory, "");
  try {
    found = find_credentials(state_->sources, call);
  } catch (...) {
    found = shardmesh::detail::caught_error();
  }
  lock.lock();
  state_->running = nullptr;
  search->is_done = true;
  state_->changed.notify_all();  // the others see the outcome when this thread unlocks
  const wall_time now = state_->now();
  if (found || !is_limit(found.error())) state_->next_search = now + pause;
  if (found && found->expires && *found->expires <= now)
    found = fail(errc::invalid_argument,
                 fmt::format("the credentials of {} expired at {}", found->source, readable_utc_time(*found->expires)))
                .with_hint("renew them");
  if (found) {
    state_->kept = *found;
  } else {
    search->failed = found.error();
    if (state_->is_valid(now)) found = *state_->kept;
  }
  return found;
}

void credential_provider::discard(const aws_credentials& refused) {
  const std::lock_guard lock(state_->mutex);
  if (state_->kept && state_->kept->access_key == refused.access_key &&
      state_->kept->session_token == refused.session_token)
    state_->kept.reset();
}

}  // namespace shardmesh::remote
