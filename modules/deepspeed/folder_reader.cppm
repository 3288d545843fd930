// SPDX-License-Identifier: Apache-2.0
// Not exported: what readers of DeepSpeed's folders share: entries with a key each, values of the files beside the
// parameters. Not here: where parameters lie (reader, universal).
module shardmesh.deepspeed:folder_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;
import :flat_run;
import :model_states;
import :optimizer_states;
import :saved_values;
import :state_dict;
import :tensor_parallel;

namespace shardmesh::deepspeed {

class folder_reader : public composed_reader {
 public:
  const std::filesystem::path& step() const { return step_; }
  // A file of torch.save below the step, as a part. Errors of the file: that it is missing, or a link out of the
  // folder.
  result<saved_file> open_file(const std::string& name);
  // errc::incomplete_save of a file of the step.
  error missing(std::string_view name, std::string_view what) const;

 protected:
  // `step` is `folder` or lies in it.
  folder_reader(const std::filesystem::path& folder, std::filesystem::path step, const open_options& options);

  // The buffers of the model as zero_to_fp32.py gives them: floating ones as float32, others as they are.
  planned_state plan_buffers(const model_states& model);
  // A planned tensor below `root_`. errc::duplicate_key.
  result<void> add(const shardmesh::path& where, const planned_tensor& tensor);
  // The whole of what ranks of tensor parallelism have, likewise. errc::shape_mismatch.
  result<void> add(const shardmesh::path& where, std::span<const planned_tensor* const> ranks, const merge_rule& rule);
  // A tensor or an object of a file as it is, below `root_`; left out with a note where a parameter has its name.
  result<void> add_beside(const saved_file& file, const shardmesh::path& where, const group_value& value);
  // What the model file has beside the model.
  result<void> add_beside_model(const saved_file& file);
  // The value of the model file at `where`, which may be the caller's.
  result<void> add_beside_model(const saved_file& file, const shardmesh::path& where, const group_value& value);

  std::filesystem::path step_;
  open_options options_;
  read_budget budget_;
  std::string folder_;    // of the step in the run's
  shardmesh::path root_;  // of what is being added

 private:
  std::set<std::string> keys_;
};

// The steps of `where` from `first` on, below others.
shardmesh::path below(shardmesh::path made, const shardmesh::path& where, std::size_t first);

}  // namespace shardmesh::deepspeed
