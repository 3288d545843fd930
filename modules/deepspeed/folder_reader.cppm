// SPDX-License-Identifier: Apache-2.0
// Not exported: the code that the readers of DeepSpeed's folders share: entries with unique keys, and the values in the
// files other than parameters. reader and universal locate the parameters.
module shardmesh.deepspeed:folder_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
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
  // Opens a torch.save file below the step as a part. Fails with the file's errors, also when it is missing or a link
  // out of the folder.
  result<saved_file> open_file(const std::string& name);
  // Makes an errc::incomplete_save for a file of the step.
  error missing(std::string_view name, std::string_view what) const;

 protected:
  // `step` is `folder` or inside it.
  folder_reader(const std::filesystem::path& folder, std::filesystem::path step, const open_options& options);

  // Plans the model's buffers as zero_to_fp32.py returns them: floating-point ones as float32, others unchanged.
  planned_state plan_buffers(const model_states& model);
  // Adds a planned tensor below `root_`. errc::duplicate_key.
  result<void> add(const shardmesh::path& where, const planned_tensor& tensor);
  // Adds a whole tensor, whose parts the ranks of tensor parallelism hold, below `root_`. errc::shape_mismatch.
  result<void> add(const shardmesh::path& where, std::span<const planned_tensor* const> ranks, const merge_rule& rule);
  // Adds a tensor or an object of a file unchanged, below `root_`. When a parameter has the same name, the value is
  // left out, with a note.
  result<void> add_beside(const saved_file& file, const shardmesh::path& where, const group_value& value);
  // Adds the values of the model file that are not part of the model.
  result<void> add_beside_model(const saved_file& file);
  // Adds one such value, found at `where`. A value that DeepSpeed's caller saved goes below `client_state`.
  result<void> add_beside_model(const saved_file& file, const shardmesh::path& where, const group_value& value);

  std::filesystem::path step_;
  open_options options_;
  read_budget budget_;
  std::string folder_;    // the step's name within the run's folder
  shardmesh::path root_;  // prefix of the added paths

 private:
  std::set<std::string> keys_;
};

// Appends the steps of `where` from `first` on to `made`.
shardmesh::path below(shardmesh::path made, const shardmesh::path& where, std::size_t first);

}  // namespace shardmesh::deepspeed
