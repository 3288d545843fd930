// SPDX-License-Identifier: Apache-2.0
// Not exported: checks that the files of several ranks belong to one save, by the values that all ranks share.
module shardmesh.deepspeed:agreement;

import shardmesh.std;
import shardmesh.core;
import :model_states;
import :optimizer_states;

namespace shardmesh::deepspeed {

// Compares counters of steps and samples, versions, the optimizer's settings and steps, ZeRO's stage, and the number of
// ranks. errc::disagreement naming the file of a rank that differs from rank 0.
result<void> check_one_save(std::span<const model_states> models, std::span<const optimizer_states> optimizers);

// Compares the values that two model files share: counters and versions.
result<void> check_same_counters(const model_states& first, const model_states& other);

// Prevents one rank's part of the tensors from passing for the whole: errc::incomplete_save when the file names more
// ranks of tensor parallelism than `ranks`.
result<void> check_all_ranks(const model_states& model, std::size_t ranks);

}  // namespace shardmesh::deepspeed
