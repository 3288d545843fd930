// SPDX-License-Identifier: Apache-2.0
// Not exported: whether the files of several ranks are of one save, by what all ranks know.
module shardmesh.deepspeed:agreement;

import shardmesh.std;
import shardmesh.core;
import :model_states;
import :optimizer_states;

namespace shardmesh::deepspeed {

// Counters of steps and samples, versions, settings and steps of the optimizer, ZeRO's stage and the number of ranks.
// errc::disagreement naming the file of the rank that says something else than rank 0.
result<void> check_one_save(std::span<const model_states> models, std::span<const optimizer_states> optimizers);

}  // namespace shardmesh::deepspeed
