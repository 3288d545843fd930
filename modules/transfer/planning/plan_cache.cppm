// SPDX-License-Identifier: Apache-2.0
// plan_cache: plans that were made lately, so that moving the same tensors again plans nothing. Not here: executors,
// which keep what they need themselves.
export module shardmesh.transfer:plan_cache;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;

export namespace shardmesh {

/// The latest plans, by what they move: descriptions of distributions, dtypes and options. Every member may be called
/// from several threads, so ranks that are threads may share one.
class plan_cache {
 public:
  /// \param capacity  plans that are kept, at least 1; the one that was not asked for longest goes first
  explicit plan_cache(std::size_t capacity = 64);
  plan_cache(plan_cache&&) noexcept;
  plan_cache& operator=(plan_cache&&) noexcept;
  ~plan_cache();

  /// As `shardmesh::plan`. Errors are not kept. Cost: O(transfers) when such a plan is there; distributions made from
  /// lists are hashed once each.
  result<transfer_plan> plan(std::vector<tensor_transfer> transfers, const plan_options& options = {});

  std::size_t size() const;
  /// Calls that found their plan, and those that made one.
  std::int64_t hits() const;
  std::int64_t misses() const;
  void clear();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
