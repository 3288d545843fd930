// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
#include "lru_cache.hpp"
module shardmesh.transfer;

namespace shardmesh {
namespace {

digest128 key_of(const std::vector<tensor_transfer>& transfers, const plan_options& options) {
  std::vector<std::int64_t> numbers{options.memory_bytes, options.allow_narrowing, options.deterministic,
                                    options.reduce_grain_bytes};
  const auto add = [&](const digest128& d) {
    numbers.push_back(static_cast<std::int64_t>(d.low));
    numbers.push_back(static_cast<std::int64_t>(d.high));
  };
  for (const tensor_transfer& t : transfers) {
    add(t.from.description_digest());
    add(t.to.description_digest());
    numbers.push_back(static_cast<std::int64_t>(t.from_type));
    numbers.push_back(static_cast<std::int64_t>(t.to_type));
  }
  return digest_of(numbers);
}

}  // namespace

struct plan_cache::state {
  explicit state(std::size_t capacity) : plans(capacity) {}
  mutable std::mutex lock;
  detail::lru_cache<digest128, transfer_plan> plans;
  std::int64_t hits = 0, misses = 0;
};

plan_cache::plan_cache(std::size_t capacity) : state_(std::make_unique<state>(capacity)) {}
plan_cache::plan_cache(plan_cache&&) noexcept = default;
plan_cache& plan_cache::operator=(plan_cache&&) noexcept = default;
plan_cache::~plan_cache() = default;

result<transfer_plan> plan_cache::plan(std::vector<tensor_transfer> transfers, const plan_options& options) {
  const digest128 key = key_of(transfers, options);
  {
    const std::lock_guard locked(state_->lock);
    if (const transfer_plan* known = state_->plans.find(key)) {
      ++state_->hits;
      return *known;
    }
    ++state_->misses;
  }
  // Outside the lock: two threads may plan the same transfers at the same time, with equal results.
  SHARDMESH_TRY(transfer_plan made, shardmesh::plan(std::move(transfers), options));
  const std::lock_guard locked(state_->lock);
  if (const transfer_plan* known = state_->plans.find(key)) return *known;
  state_->plans.insert(key, made);
  return made;
}

std::size_t plan_cache::size() const {
  const std::lock_guard locked(state_->lock);
  return state_->plans.size();
}
std::int64_t plan_cache::hits() const {
  const std::lock_guard locked(state_->lock);
  return state_->hits;
}
std::int64_t plan_cache::misses() const {
  const std::lock_guard locked(state_->lock);
  return state_->misses;
}
void plan_cache::clear() {
  const std::lock_guard locked(state_->lock);
  state_->plans.clear();
}

}  // namespace shardmesh
