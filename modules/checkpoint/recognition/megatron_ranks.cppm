// SPDX-License-Identifier: Apache-2.0
// Not exported: a checkpoint of Megatron's older format, with a file for each rank of tensor and pipeline parallelism
// (mp_rank_01_000/model_optim_rng.pt), as one checkpoint with whole tensors. The rules are in megatron_cut. Bodies:
// `megatron_ranks.cpp` opens and checks the files, `megatron_merge.cpp` merges the parts of tensors, and
// `megatron_entries.cpp` adds all other entries.
module shardmesh.checkpoint:megatron_ranks;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :megatron_cut;

namespace shardmesh {

class megatron_ranks_reader final : public composed_reader {
 public:
  explicit megatron_ranks_reader(const std::filesystem::path& folder)
      : composed_reader(checkpoint_format::torch_files, folder) {}

  result<void> open(const open_options& options);

 private:
  // The layers that a pipeline rank has of a virtual stage.
  struct stage {
    std::int64_t chunk = 0, rank = 0;  // in the order of the model
    std::int64_t first_layer = 0;
  };
  // A name of the whole model that is merged, and where it was first.
  struct first_place {
    std::int64_t rank = 0;  // of the pipeline
    std::string key;
  };

  result<void> open_files(const open_options& options);
  std::size_t part_at(std::int64_t tensor_rank, std::int64_t rank) const {
    return static_cast<std::size_t>(rank * tensor_ranks_ + tensor_rank);
  }
  const catalog& contents_of(std::size_t part) { return this->part(part).contents(); }
  std::size_t position_of(std::size_t part, const std::string& key) {
    return static_cast<std::size_t>(contents_of(part).find(key) - contents_of(part).tensors.data());
  }
  std::size_t object_position_of(std::size_t part, const std::string& key) {
    return static_cast<std::size_t>(contents_of(part).find_object(key) - contents_of(part).objects.data());
  }
  // Of an entry of the whole model.
  static std::string key_of(const std::string& name) { return "model." + name; }
  static shardmesh::path path_of(const std::string& name) { return {std::string("model"), name}; }
  error at(error problem, const std::string& key, std::size_t part);

  // Checks that the tensor-parallel ranks of a pipeline rank have the same entries of the model.
  result<void> check_same_keys(std::int64_t rank);
  result<void> check_has_keys(std::size_t part, std::size_t other);
  // The stages in the order of the model. The layers of each are counted from 0, without a gap.
  result<std::vector<stage>> find_stages();
  // Checks that the last stage, and no other, has the end of the model. The ranks of expert parallelism all have it.
  result<void> check_end(const std::vector<stage>& stages);

  result<void> merge_tensor(const megatron_key& key, const stage& of, std::size_t index);
  // Adds a state of Transformer Engine once if all ranks have it alike, otherwise once for each.
  result<void> merge_states(const std::string& name, const stage& of, const std::string& key);
  result<void> merge_object(const megatron_key& key, const stage& of, std::size_t index);
  // Checks that an entry that an earlier stage has as well is equal there.
  result<void> check_repeated(const std::string& key, const stage& of, const first_place& first, bool is_tensor);
  result<void> check_same_form(const tensor_entry& first, const tensor_entry& other, std::size_t part);
  result<std::vector<std::int64_t>> blocks_of(const megatron_key& key, const stage& of, const tensor_entry& tensor);
  result<void> merge_parts(tensor_entry made, const stage& of, const std::vector<std::size_t>& positions,
                           std::size_t dim, const std::vector<std::int64_t>& blocks);
  result<void> merge_copies(tensor_entry made, const stage& of, const std::vector<std::size_t>& positions);
  result<bool> are_equal(std::size_t part, std::size_t index, std::size_t other, std::size_t other_index);

  // Adds the entries outside of the model: objects that all ranks have alike once, and any other under
  // "mp_rank_00.KEY".
  result<void> add_others();
  result<bool> is_same_in_all(std::size_t index);

  std::int64_t tensor_ranks_ = 1, pipeline_ranks_ = 1;
  std::vector<std::string> folders_;           // per part
  std::map<std::string, first_place> merged_;  // names of the whole model
};

// Returns true when a folder has the folders of several ranks.
bool holds_megatron_ranks(const std::filesystem::path& folder);

// Opens the files of all ranks.
// \errors errc::bad_format for a folder whose name is not that of a rank; errc::incomplete_save for a missing rank or
//         layer; errc::missing_key, errc::dtype_mismatch, errc::shape_mismatch, and errc::disagreement for files that do
//         not fit together; errc::unsupported for expert parallelism, and for tensors without a rule; those of
//         torch_file::open; each names the file or folder, and the key if it concerns one
// Cost: reads the tensors that are not cut, unless their stored checksums are equal.
result<std::unique_ptr<checkpoint_reader>> open_megatron_ranks(const std::filesystem::path& folder,
                                                               const open_options& options);

}  // namespace shardmesh
