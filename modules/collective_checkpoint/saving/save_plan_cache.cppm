// SPDX-License-Identifier: Apache-2.0
// save_plan_cache: the plan of a rank's latest save, for saves that repeat it. The contents of a plan are in kept_plan;
// saving is in save.
export module shardmesh.collective_checkpoint:save_plan_cache;

import shardmesh.std;

namespace shardmesh {
class plan_keeper;
}

export namespace shardmesh {

/// Keeps the plan of a rank's latest DCP save. The next save uses it, without descriptions and shares, if on every rank
/// the group, the options, the paths, shapes, dtypes, and boxes, and the sizes of the objects are the same; values may
/// differ. Otherwise the ranks plan, and keep the new plan. The checkpoint is the same in both cases.
///
/// It belongs to one rank: ranks that are threads of one process have one each. Copies of the value refer to the same
/// cache. All calls are thread-safe.
class save_plan_cache {
 public:
  /// No cache: the ranks plan every save.
  save_plan_cache() = default;
  /// Makes an empty cache. Cost: it keeps about 600 bytes per chunk: of the checkpoint on rank 0, and of the rank's own
  /// chunks on another rank.
  static save_plan_cache make();

  /// True for a default-constructed value.
  bool is_none() const { return !state_; }
  /// Returns the number of saves that have used a kept plan. Precondition: !is_none().
  std::int64_t reuses() const;

  struct state;

 private:
  friend class plan_keeper;
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh
