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

// The part of it that two model files know: counters and versions.
result<void> check_same_counters(const model_states& first, const model_states& other);

// A rank's part of tensors must not pass for the whole of them: errc::incomplete_save where the file speaks of more
// ranks of tensor parallelism than there are.
result<void> check_all_ranks(const model_states& model, std::size_t ranks);

}  // namespace shardmesh::deepspeed
