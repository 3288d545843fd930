// SPDX-License-Identifier: Apache-2.0
// Not exported: reads how ranks of tensor parallelism cut parameters (the model files record it for
// ds_to_universal.py), and merges whole parameters. One rank's parameters are in partition.
// Source: deepspeed.checkpoint.ds_to_universal.merge_tp_slices
module shardmesh.deepspeed:tensor_parallel;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :flat_run;
import :model_states;

namespace shardmesh::deepspeed {

// The rule that merges the ranks' parts of one parameter.
struct merge_rule {
  bool is_replicated = false;        // every rank has all of it
  std::size_t dim = 0;               // parts are consecutive along this dimension
  std::int64_t sub_parameters = 1;   // along dim, each cut separately
  std::optional<std::int64_t> rows;  // rows of a vocabulary before its padding
};

class tensor_rules {
 public:
  // Reads the rules in `universal_checkpoint_info`. When the rules cannot be used, `reason` says why: there are none,
  // or some are unknown or need arithmetic to merge. errc::bad_format for values of the wrong kind, naming key and
  // file.
  static result<tensor_rules> read(const model_states& model);
  bool ok() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }
  merge_rule rule_of(const std::string& name) const;

 private:
  struct patterns;
  std::string reason_;
  std::shared_ptr<const patterns> patterns_;
  std::optional<std::int64_t> rows_;
};

// Adds the tensor that the ranks' parts form, in order, without copying them. errc::shape_mismatch when they do not fit
// each other, and the errors of `composed_reader::add_chunk`; each names the key.
result<void> add_merged(composed_reader& reader, const std::string& key, shardmesh::path where,
                        std::span<const planned_tensor* const> ranks, const merge_rule& rule);

}  // namespace shardmesh::deepspeed
