// SPDX-License-Identifier: Apache-2.0
// Not exported: locates each parameter's elements in the ranks' flat buffers. Frozen parameters, buffers, and shared
// names are in state_dict.
// Source: _zero2_merge_trainable_params and _zero3_merge_trainable_params of deepspeed.utils.zero_to_fp32
module shardmesh.deepspeed:partition;

import shardmesh.std;
import shardmesh.core;
import :flat_run;
import :model_states;
import :optimizer_states;

namespace shardmesh::deepspeed {

// A parameter in the flat buffers. For ZeRO 1 and 2, `offset` counts elements in its group's buffer over all ranks. For
// ZeRO 3 it counts in each rank's buffers over all groups, and each rank has an equal part of the parameter.
struct placed_parameter {
  std::string name;
  extents shape;
  std::int64_t numel = 0, offset = 0;
  std::size_t group = 0;
};

class partition {
 public:
  // `ranks` must outlive the result. errc::shape_mismatch when the ranks' buffers and the parameters do not fit each
  // other, errc::bad_format for two parameters with the same name; each names the file.
  static result<partition> make(const model_states& model, std::span<const optimizer_states> ranks);

  // Returns true when every rank has a part of every parameter.
  bool is_stage_3() const { return ranks_.front().stage == 3; }
  std::span<const placed_parameter> parameters() const { return parameters_; }
  planned_tensor weights_of(const placed_parameter& parameter) const { return *planned(parameter, weights_); }
  // Returns a state of the optimizer, as (parameter number, tensor) for every parameter that has it. Returns nothing
  // when the ranks' parts of the state differ from those of the weights: the state then has a layout of its own.
  std::optional<std::vector<std::pair<std::size_t, planned_tensor>>> state(const std::string& name) const;

 private:
  explicit partition(std::span<const optimizer_states> ranks) : ranks_(ranks) {}
  using tensor_of = std::function<std::optional<std::size_t>(std::size_t rank, std::size_t group)>;
  // The flat buffers that `chosen` names: one run per group over ranks, or one per rank over groups.
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
