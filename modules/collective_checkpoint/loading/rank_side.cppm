// SPDX-License-Identifier: Apache-2.0
// Not exported: one side of a transfer in which a rank knows its own fragments and those of its peers, but no others.
module shardmesh.collective_checkpoint:rank_side;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

namespace shardmesh {

// Collects fragments, and numbers the slots of each rank in the order in which they are added.
class rank_side {
 public:
  explicit rank_side(const extents& shape) : made_(shape, owner_space::ranks) {}
  void add(std::int32_t rank, const box& where) { made_.add(rank, slots_[rank]++, where.offsets, where.sizes); }
  // Returns the distribution; its errors name `key`.
  result<distribution> finish(const std::string& key) {
    auto made = made_.finish();
    if (!made) return std::move(made).error().with_key(key);
    return made;
  }

 private:
  distribution_builder made_;
  std::map<std::int32_t, std::int32_t> slots_;  // per rank, the next one
};

}  // namespace shardmesh
