// SPDX-License-Identifier: Apache-2.0
// Not exported: where each parameter's elements lie in the ranks' flat buffers. Not here: frozen parameters, buffers,
// shared names (state_dict).
// Source: _zero2_merge_trainable_params and _zero3_merge_trainable_params of deepspeed.utils.zero_to_fp32
module shardmesh.deepspeed:partition;

import shardmesh.std;
import shardmesh.core;
import :flat_run;
import :model_states;
import :optimizer_states;

namespace shardmesh::deepspeed {

// A parameter in the flat buffers: `offset` counts in its group's, over all ranks (ZeRO 1 and 2), or in every rank's,
// over all groups (ZeRO 3), where each rank has an equal part of it.
struct placed_parameter {
  std::string name;
  extents shape;
  std::int64_t numel = 0, offset = 0;
  std::size_t group = 0;
};

class partition {
 public:
  // `ranks` must outlive this. errc::shape_mismatch where buffers of ranks and parameters do not fit each other,
  // errc::bad_format for two parameters of one name; each names the file.
  static result<partition> make(const model_states& model, std::span<const optimizer_states> ranks);

  // Every rank has a part of every parameter.
  bool is_stage_3() const { return ranks_.front().stage == 3; }
  std::span<const placed_parameter> parameters() const { return parameters_; }
  planned_tensor weights_of(const placed_parameter& parameter) const { return *planned(parameter, weights_); }
  // Of every parameter that has it, (its number, the tensor) of a state of the optimizer. Nothing when the ranks' parts
  // of the state are not those of the weights: it has a layout of its own.
  std::optional<std::vector<std::pair<std::size_t, planned_tensor>>> state(const std::string& name) const;

 private:
  explicit partition(std::span<const optimizer_states> ranks) : ranks_(ranks) {}
  using tensor_of = std::function<std::optional<std::size_t>(std::size_t rank, std::size_t group)>;
  // The flat buffers that `chosen` names: of each group over ranks, or of each rank over groups.
  struct buffers {
    std::vector<flat_run> runs;
    tensor_of chosen;
  };
  std::int64_t numel_of(std::size_t rank, std::size_t group) const;
  const tensor_entry& entry_of(std::size_t rank, std::size_t tensor) const;
  buffers buffers_of(tensor_of chosen) const;
  result<void> check_sizes() const;
  result<void> place_over_ranks(const model_states& model);
  result<void> place_over_groups(const model_states& model);
  std::optional<planned_tensor> planned(const placed_parameter& parameter, const buffers& from) const;

  std::span<const optimizer_states> ranks_;
  std::vector<placed_parameter> parameters_;
  buffers weights_;
};

}  // namespace shardmesh::deepspeed
