// SPDX-License-Identifier: Apache-2.0
// Not exported: the reader of torch_checkpointing's folders: the ranks' files as parts of one checkpoint. Its bodies:
// the files (folder_reader), what the metadata says of tensors (described_tensors), all else (undescribed_entries).
module shardmesh.torch_checkpointing:folder_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;
import shardmesh.catalog;
import :metadata;

namespace shardmesh::torch_checkpointing {

using tree_path = shardmesh::path;  // readers have a path of their own

class folder_reader final : public composed_reader {
 public:
  folder_reader(std::filesystem::path folder, const open_options& options)
      : composed_reader(checkpoint_format::torch_checkpointing, std::move(folder)),
        options_(options),
        budget_(options.limits) {}

  result<void> open();

  // A box of a rank's tensor: where it begins there is ours to know.
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;

 private:
  // One rank's file of an item, opened.
  struct opened_part {
    std::int32_t rank = 0;
    std::size_t number = 0;
    bool is_flat = false;  // safetensors: keys are dotted
    std::unordered_map<std::string, std::size_t> tensors;
    std::set<std::size_t> described;  // those that the metadata speaks of
  };
  struct inner_box {
    std::size_t part = 0, tensor = 0;
    box where;
  };
  struct holder {
    std::size_t part = 0, tensor = 0;
  };
  // Where an entry lies in ranks' files.
  struct occurrence {
    std::int32_t rank = 0;
    std::size_t part = 0, index = 0;
    bool is_tensor = false;
  };

  result<metadata> read_metadata();
  result<void> add_item(const item_metadata& item, std::int32_t world_size);
  // Ranks without a file, where everything was found in others'.
  void warn_of_missing(const item_metadata& item, const std::set<std::int32_t>& needed,
                       const std::vector<std::int32_t>& at);
  result<opened_part> open_file(const rank_file& file, const std::string& key, std::int32_t rank);
  result<void> add_described(const item_metadata& item, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                             const std::vector<std::int32_t>& at);
  // A tensor of a representation of its own, which is not read as elements: that of the first rank. True when it is
  // one.
  result<bool> add_opaque(const tensor_entry& entry, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                          const std::vector<std::int32_t>& at, const std::string& name);
  // What lies in the file is what the metadata says of this rank.
  bool check_local(const tensor_entry& entry, const sharding& group, std::int32_t rank,
                   const std::vector<placed_box>& boxes, const opened_part& from, std::size_t index);
  // Replicas that differ: the metadata says that one may stand for the other.
  void compare_replicas(const tensor_entry& entry, const holder& a, const holder& b);
  result<void> add_stray(const std::string& key, const std::map<std::int32_t, std::string>& files,
                         std::int32_t world_size);
  // What the metadata says nothing of: one entry where the ranks agree, else one for each.
  result<void> add_rest(const std::string& key, const std::vector<opened_part>& parts,
                        const item_metadata* item = nullptr);
  tree_path where_of(const occurrence& one, const std::string& key);
  result<bool> are_same(const std::vector<occurrence>& found);
  // Without what stands for nothing where other ranks have something: empty dicts above entries, files that hold an
  // empty dict, None in the place of a tensor in a list.
  result<std::vector<occurrence>> filled(const std::vector<occurrence>& found, bool has_below);
  result<bool> is_same(const occurrence& a, const occurrence& b);
  result<void> add_one(const occurrence& one, const tree_path& where);
  error located(error problem) const;

  open_options options_;
  read_budget budget_;
  std::unordered_map<std::int32_t, inner_box> inner_boxes_;  // chunks that are a box of their file's tensor
  std::set<std::string> differing_;
  std::size_t unread_descriptions_ = 0;  // of tensors, after too many problems
};

// Paths of metadata and of files meet here: each step's text behind its length, as names may hold anything.
std::string joined(const tree_path& where, std::size_t from);

}  // namespace shardmesh::torch_checkpointing
