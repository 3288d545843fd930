// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :staging_lease;

namespace shardmesh {

struct staging_pool::state {
  staging_pool_options options;
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<host_tensor> kept;  // unused memory, from the smallest to the largest
  staging_use use;
  std::int32_t rank = 0;  // the rank whose saves use the pool

  std::int64_t free_bytes() const { return options.max_bytes == 0 ? INT64_MAX : options.max_bytes - use.used_bytes; }
  bool has_room(std::int64_t size_bytes) const { return use.saves < options.max_saves && size_bytes <= free_bytes(); }
  void drop(std::vector<host_tensor>::iterator one) {
    use.kept_bytes -= std::ssize(one->bytes());
    kept.erase(one);
  }
  void drop_all() {
    while (!kept.empty()) drop(kept.begin());
  }

  // Returns kept memory that is large enough, or new memory within the pool's bound. Precondition: has_room.
  result<host_tensor> memory_of(std::int64_t size_bytes) {
    if (size_bytes == 0) return host_tensor();
    const auto fits = std::find_if(kept.begin(), kept.end(),
                                   [&](const host_tensor& one) { return std::ssize(one.bytes()) >= size_bytes; });
    if (fits != kept.end()) {
      host_tensor found = std::move(*fits);
      use.kept_bytes -= std::ssize(found.bytes());
      kept.erase(fits);
      return found;
    }
    // Memory that is too small is freed, even if the pool has no bound: growing states would leave more and more
    // behind.
    while (!kept.empty() && (size_bytes > free_bytes() - use.kept_bytes ||
                             use.saves + std::ssize(kept) >= std::ptrdiff_t{options.max_saves}))
      drop(kept.begin());
    auto made = host_tensor::make(dtype::uint8, {size_bytes});
    if (!made && !kept.empty()) {
      drop_all();
      made = host_tensor::make(dtype::uint8, {size_bytes});
    }
    if (made) ++use.taken;
    return made;
  }
};

result<staging_pool> staging_pool::make(const staging_pool_options& options) {
  if (options.max_bytes < 0 || options.max_saves < 1)
    return fail(errc::invalid_argument,
                "a staging pool must have room for at least one save, and its number of bytes cannot be negative")
        .with_values("", fmt::format("{}, {}", detail::counted(options.max_saves, "save"),
                                     detail::counted(options.max_bytes, "byte")));
  staging_pool made;
  made.state_ = std::make_shared<state>();
  made.state_->options = options;
  return made;
}

const staging_pool_options& staging_pool::options() const {
  return state_->options;
}

staging_use staging_pool::use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->use;
}

std::int64_t staging_pool::release() {
  const std::lock_guard lock(state_->mutex);
  const std::int64_t released = state_->use.kept_bytes;
  state_->drop_all();
  return released;
}

namespace {

std::string text_of(const staging_use& use) {
  return fmt::format("{} under way with {}", use.saves == 1 ? "one save" : fmt::format("{} saves", use.saves),
                     human_bytes(use.used_bytes));
}

std::string bound_of(const staging_pool_options& options) {
  const std::string saves = options.max_saves == 1 ? "one save" : fmt::format("{} saves", options.max_saves);
  return options.max_bytes == 0 ? "at most " + saves
                                : fmt::format("at most {} and {}", saves, human_bytes(options.max_bytes));
}

}  // namespace

result<staging_lease> staging_lease::take(const staging_pool& pool, std::int64_t size_bytes, std::int32_t rank,
                                          const call_options& call) {
  staging_pool::state& state = *pool.state_;
  const staging_pool_options& options = state.options;
  std::unique_lock lock(state.mutex);
  const auto is_foreign = [&] { return state.use.saves > 0 && state.rank != rank; };
  if (options.max_bytes > 0 && size_bytes > options.max_bytes)
    return fail(errc::no_memory, "the copies of a save do not fit into its staging pool")
        .with_rank(rank)
        .with_values(fmt::format("at most {} bytes", options.max_bytes), fmt::format("{} bytes", size_bytes));
  const auto full = [&](error problem) {
    return std::move(problem).with_rank(rank).with_values(
        bound_of(options), fmt::format("{}; another one of {}", text_of(state.use), human_bytes(size_bytes)));
  };
  const auto has_room = [&] { return state.has_room(size_bytes); };
  const auto may_go_on = [&] { return has_room() || is_foreign() || options.when_full == full_staging::refuse; };
  ++state.use.waiting;
  const bool goes_on = call.within ? state.changed.wait_until(lock, call.cancel, *call.within, may_go_on)
                                   : state.changed.wait(lock, call.cancel, may_go_on);
  --state.use.waiting;
  if (is_foreign())
    return fail(errc::invalid_argument, "a staging pool belongs to one rank, and another rank's save uses this one")
        .with_rank(state.rank)
        .with_rank(rank)
        .with_hint("make a pool for each rank");
  if (goes_on && !has_room()) return full(fail(errc::no_memory, "the staging pool is full"));
  if (!goes_on)
    return full(detail::limit_error(call.cancel.stop_requested() ? errc::cancelled : errc::deadline_exceeded, "save",
                                    " while it waited for staging"));
  state.kept.reserve(state.kept.size() + static_cast<std::size_t>(state.use.saves) + 1);  // so that nothing fails later
  SHARDMESH_TRY(host_tensor memory, state.memory_of(size_bytes));
  ++state.use.saves;
  state.use.used_bytes += std::ssize(memory.bytes());
  state.rank = rank;
  staging_lease made;
  made.pool_ = pool.state_;
  made.memory_ = std::move(memory);
  return made;
}

void staging_lease::give_back() noexcept {
  const auto pool = std::exchange(pool_, nullptr);
  if (!pool) return;
  const std::int64_t size_bytes = std::ssize(memory_.bytes());
  const std::lock_guard lock(pool->mutex);
  --pool->use.saves;
  pool->use.used_bytes -= size_bytes;
  if (size_bytes > 0) {
    const auto larger = std::find_if(pool->kept.begin(), pool->kept.end(),
                                     [&](const host_tensor& one) { return std::ssize(one.bytes()) >= size_bytes; });
    pool->kept.insert(larger, std::move(memory_));
    pool->use.kept_bytes += size_bytes;
  }
  memory_ = {};
  pool->changed.notify_all();
}

}  // namespace shardmesh
