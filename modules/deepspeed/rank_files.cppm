// SPDX-License-Identifier: Apache-2.0
// Not exported: sorts the files of one step by the ranks in their names. Their content is in rank_states.
// Source: DeepSpeedEngine._get_ckpt_name, _get_rank_zero_ckpt_name
module shardmesh.deepspeed:rank_files;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::deepspeed {

// The files that one model-parallel rank saved; the keys are data-parallel ranks.
struct model_parallel_rank {
  std::string model;                               // mp_rank_00_model_states.pt; empty when missing
  std::map<std::int64_t, std::string> models;      // ZeRO 3: zero_pp_rank_1_mp_rank_00_model_states.pt
  std::map<std::int64_t, std::string> optimizers;  // [bf16_]zero_pp_rank_1_mp_rank_00_optim_states.pt
};

// Returns true for the name of a rank's file, including files of experts and pipeline stages, which are not read.
bool is_rank_file(std::string_view name);

// Returns the same name for another data-parallel rank.
std::string name_for_rank(const std::string& name, std::int64_t rank);

// Returns the name of the model file beside an optimizer file: of the same rank (ZeRO 3), or of all ranks.
std::string model_file_beside(const std::string& optimizer, std::optional<std::int64_t> rank);

// Lists the files by model-parallel rank. errc::io; errc::unsupported for files of experts and pipeline stages;
// errc::bad_format for two files of one rank.
result<std::map<std::int64_t, model_parallel_rank>> list_rank_files(const std::filesystem::path& step);

}  // namespace shardmesh::deepspeed
