// SPDX-License-Identifier: Apache-2.0
// Chooses which of a chunk's holders writes it. The caller supplies the holders.
export module shardmesh.checkpoint_core:load_balancer;

import shardmesh.std;
import shardmesh.layout;

export namespace shardmesh {

/// Assigns each chunk to the holder with the fewest bytes so far; ties go to the lowest rank.
class load_balancer {
 public:
  std::int32_t give(std::span<const owner_id> holders, std::int64_t bytes) {
    owner_id best = holders.front();
    for (const owner_id holder : holders)
      if (std::pair(load_[holder], holder) < std::pair(load_[best], best)) best = holder;
    load_[best] += bytes;
    return best;
  }

 private:
  std::unordered_map<owner_id, std::int64_t> load_;
};

}  // namespace shardmesh
