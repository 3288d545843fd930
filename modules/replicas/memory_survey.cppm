// SPDX-License-Identifier: Apache-2.0
// Not exported: finds the steps that the ranks of a communicator hold together, and the ranks of each chunk. The ranks
// may be others than those that kept the steps, and any of them may hold nothing.
module shardmesh.replicas:memory_survey;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :kept_catalog;
import :memory_step;
import :rank_round;

namespace shardmesh {

struct surveyed_step {
  digest128 id;
  std::shared_ptr<const kept_catalog> catalog;
  std::vector<std::vector<std::int32_t>> holders;  // per chunk, the ranks with an intact copy, ascending
  std::int64_t damaged_copies = 0;                 // on all ranks

  bool is_complete() const;
};

// Compares every copy with its digest, and tells all ranks. Collective. Returns the steps that any rank holds, the last
// one first; every rank gets the same answer.
// Cost: each rank reads its copies; one round, and a second one if a rank lacks a catalog.
result<std::vector<surveyed_step>> survey_memory(std::span<const memory_step> steps, const rank_round& round);

// Returns errc::gap with the key and the box of each lost chunk; nothing for a complete step.
std::optional<error> lost_chunks(const surveyed_step& step);

}  // namespace shardmesh
