// SPDX-License-Identifier: Apache-2.0
// Not exported: how ranks of tensor parallelism cut parameters, as the model files say it to ds_to_universal.py, and
// the whole parameters. Not here: one rank's (partition).
// Source: deepspeed.checkpoint.ds_to_universal.merge_tp_slices
module shardmesh.deepspeed:tensor_parallel;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :flat_run;
import :model_states;

namespace shardmesh::deepspeed {

// How the ranks' parts of one parameter make it whole.
struct merge_rule {
  bool is_replicated = false;        // every rank has all of it
  std::size_t dim = 0;               // parts lie one after the other along it
  std::int64_t sub_parameters = 1;   // along dim, each of which was cut by itself
  std::optional<std::int64_t> rows;  // of a vocabulary, before it was padded
};

class tensor_rules {
 public:
  // Of `universal_checkpoint_info`. Without rules, `reason` says why: there are none, or some that have no merging
  // without arithmetic or that are not known. errc::bad_format for values of another kind, naming key and file.
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

// Adds the whole of the ranks' parts, in order, without copying any. errc::shape_mismatch where they do not fit each
// other, those of `composed_reader::add_chunk`; each names the key.
result<void> add_merged(composed_reader& reader, const std::string& key, shardmesh::path where,
                        std::span<const planned_tensor* const> ranks, const merge_rule& rule);

}  // namespace shardmesh::deepspeed
