// SPDX-License-Identifier: Apache-2.0
// Not exported: reads the folder `zero` of a universal checkpoint, with one file per state of each parameter, as a part
// of the checkpoint. The files are many, so the number of open ones is limited. Their use is in universal.
// Source: deepspeed.checkpoint.ds_to_universal.merge_tp_slices, merge_zero3_slices
module shardmesh.deepspeed:parameter_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;

namespace shardmesh::deepspeed {

struct parameter_file {
  std::string state;           // "fp32", "exp_avg", "step": the file's name
  bool is_tensor = false;      // otherwise an object, such as a step
  std::size_t index = 0;       // into the catalog's tensors or objects
  bool is_described = false;   // a dict of the tensor and how it was merged; otherwise the tensor alone
  bool is_merged = false;      // the dict says how ranks' parts were merged
  bool is_vocabulary = false;  // padding after its rows was removed
};

class parameter_files final : public checkpoint_reader {
 public:
  parameter_files(std::filesystem::path step, const open_options& options);
  // Opens every file briefly. errc::io, errc::bad_format for a file that is not a parameter, errc::unsupported for
  // tensors that cannot be read; each names the file.
  result<void> list();
  // By parameter; the states of each are in name order.
  const std::map<std::string, std::vector<parameter_file>>& parameters() const { return parameters_; }

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  result<object_value> read_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;
  result<std::optional<digest128>> content_of(const whole_entry& entry) override;

 private:
  struct opened_file;
  result<void> list_names();
  result<void> add(std::size_t number);
  result<void> add_tensor(const opened_file& opened, std::size_t number, std::size_t tensor);
  result<opened_file> open_file(std::size_t number);
  error located(error e, const std::string& key, std::size_t number) const;

  open_options options_;
  read_budget budget_;
  std::vector<std::pair<std::string, std::string>> names_;  // parameter and state of each file
  std::unique_ptr<folder_files> files_;
  std::map<std::string, std::vector<parameter_file>> parameters_;
  std::vector<std::size_t> file_of_tensor_, file_of_object_;
  chunk_cache cache_;
};

// Returns true when the step's folder is a universal checkpoint.
bool is_universal(const std::filesystem::path& step);
// "zero/optimizer_state.pt": the values of the optimizer beside its states.
inline constexpr std::string_view common_state_file = "zero/optimizer_state.pt";

}  // namespace shardmesh::deepspeed
