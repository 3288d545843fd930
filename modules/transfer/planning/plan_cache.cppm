// SPDX-License-Identifier: Apache-2.0
// Recent plans, so that a repeated move of the same tensors is not planned again. Executors do not need it: each keeps
// its own data.
export module shardmesh.transfer:plan_cache;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;

export namespace shardmesh {

/// The most recent plans, keyed by their distributions' descriptions, dtypes, and options. Every member may be called
/// from several threads, so ranks that are threads may share one cache.
class plan_cache {
 public:
  /// \param capacity  number of plans to keep, at least 1; the least recently used plan is evicted first
  explicit plan_cache(std::size_t capacity = 64);
  plan_cache(plan_cache&&) noexcept;
  plan_cache& operator=(plan_cache&&) noexcept;
  ~plan_cache();

  /// Returns the cached plan of these transfers, or plans them as `shardmesh::plan` does. Errors are not cached.
  /// Cost: O(transfers) on a hit. Each distribution made from a list is hashed once.
  result<transfer_plan> plan(std::vector<tensor_transfer> transfers, const plan_options& options = {});

  std::size_t size() const;
  /// Number of calls that found their plan in the cache, and of calls that had to plan.
  std::int64_t hits() const;
  std::int64_t misses() const;
  void clear();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
