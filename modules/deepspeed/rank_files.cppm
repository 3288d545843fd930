// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of one step by the ranks in their names. Not here: what is in them.
// Source: DeepSpeedEngine._get_ckpt_name, _get_rank_zero_ckpt_name
module shardmesh.deepspeed:rank_files;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::deepspeed {

// What one rank of a model-parallel group has saved; the keys are ranks of data parallelism.
struct model_parallel_rank {
  std::string model;                               // mp_rank_00_model_states.pt; empty: there is none
  std::map<std::int64_t, std::string> models;      // ZeRO 3: zero_pp_rank_1_mp_rank_00_model_states.pt
  std::map<std::int64_t, std::string> optimizers;  // [bf16_]zero_pp_rank_1_mp_rank_00_optim_states.pt
};

// A name that a rank's file has; also those of experts and pipeline stages, which are not read.
bool is_rank_file(std::string_view name);

// The same name for another rank of data parallelism.
std::string name_for_rank(const std::string& name, std::int64_t rank);

// The model file beside an optimizer file: of the same rank (ZeRO 3), or of all of them.
std::string model_file_beside(const std::string& optimizer, std::optional<std::int64_t> rank);

// By rank of model parallelism. errc::io; errc::unsupported for files of experts and of pipeline stages;
// errc::bad_format for two files of one rank.
result<std::map<std::int64_t, model_parallel_rank>> list_rank_files(const std::filesystem::path& step);

}  // namespace shardmesh::deepspeed
