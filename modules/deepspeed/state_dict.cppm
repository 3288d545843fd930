// SPDX-License-Identifier: Apache-2.0
// Not exported: builds the model's state dict as zero_to_fp32.py does. The places of trained parameters are in
// partition.
// Source: _get_fp32_state_dict_from_zero2_checkpoint, _get_fp32_state_dict_from_zero3_checkpoint
module shardmesh.deepspeed:state_dict;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :flat_run;
import :model_states;
import :partition;

namespace shardmesh::deepspeed {

// Tensors by name, in the order in which the names were first set.
struct planned_state {
  std::vector<std::pair<std::string, planned_tensor>> entries;
  std::map<std::string, std::size_t> places;
  const planned_tensor* find(const std::string& name) const;
  void set(const std::string& name, planned_tensor tensor);  // replaces a tensor of the same name
};

// Adds the frozen parameters: whole in the first file, or (ZeRO 3) in parts over all files. errc::missing_key,
// errc::shape_mismatch.
result<void> add_frozen(std::span<const model_states> models, bool is_stage_3, planned_state& into);

// Adds names that share another parameter's elements. The repeated bytes count against `budget`.
result<void> add_shared(const model_states& model, planned_state& into, read_budget& budget);

// Builds the state dict. `models` are the files with parts of the model: rank 0's, or (ZeRO 3) those of all ranks.
// `buffers` are rank 0's buffers. Bytes that shared names repeat count against `budget`.
// errc::missing_key (a frozen parameter without elements), errc::shape_mismatch; each names key and file.
result<planned_state> plan_state(std::span<const model_states> models, const partition& trained, planned_state buffers,
                                 read_budget& budget);

}  // namespace shardmesh::deepspeed
