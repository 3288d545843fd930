// SPDX-License-Identifier: Apache-2.0
// Not exported: the reader of torch_checkpointing's folders, with the ranks' files as parts of one checkpoint. It is
// implemented in folder_reader.cpp (files), described_tensors.cpp (tensors in the metadata), and
// undescribed_entries.cpp (everything else).
module shardmesh.torch_checkpointing:folder_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;
import shardmesh.checkpoint_core;
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

  // Also opens chunks that are a box inside their rank's tensor; only this reader knows where the box begins.
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;

 private:
  // One rank's opened file of an item.
  struct opened_part {
    std::int32_t rank = 0;
    std::size_t number = 0;
    bool is_flat = false;  // safetensors: keys are dotted
    std::unordered_map<std::string, std::size_t> tensors;
    std::unordered_map<std::string, std::size_t> objects;  // by path; none of a flat file
    std::set<std::size_t> described;                       // the tensors that the metadata describes
  };
  struct inner_box {
    std::size_t part = 0, tensor = 0;
    box where;
  };
  struct holder {
    std::size_t part = 0, tensor = 0;
  };
  // The place of an entry in a rank's file.
  struct occurrence {
    std::int32_t rank = 0;
    std::size_t part = 0, index = 0;
    bool is_tensor = false;
  };

  // These two are in described_tensors.cpp.
  struct described_rank;
  struct described_boxes;

  result<metadata> read_metadata();
  result<void> add_item(const item_metadata& item, std::int32_t world_size);
  // Warns of ranks without a file when other ranks' files hold everything.
  void warn_of_missing(const item_metadata& item, const std::set<std::int32_t>& needed,
                       const std::vector<std::int32_t>& at);
  result<opened_part> open_file(const rank_file& file, const std::string& key, std::int32_t rank);
  result<void> add_described(const item_metadata& item, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                             const std::vector<std::int32_t>& at);
  // Finds the boxes of a described tensor that one rank holds.
  void find_boxes(const tensor_entry& entry, const item_metadata& item, const described_rank& of,
                  described_boxes& made);
  // Adds a described tensor with the boxes that were found.
  result<void> add_boxes(const tensor_entry& entry, described_boxes found);
  // Adds a tensor that cannot be read as elements, from the first rank that has it. Returns false for other tensors.
  result<bool> add_opaque(const tensor_entry& entry, const tensor_metadata& tensor, std::vector<opened_part>& parts,
                          const std::vector<std::int32_t>& at, const std::string& name);
  // Checks that a rank's tensor in the file matches the metadata.
  bool check_local(const tensor_entry& entry, const sharding& group, std::int32_t rank,
                   const std::vector<placed_box>& boxes, const opened_part& from, std::size_t index);
  // Warns when replicas differ although the metadata says that they are copies.
  void compare_replicas(const tensor_entry& entry, const holder& a, const holder& b);
  result<void> add_stray(const std::string& key, const std::map<std::int32_t, std::string>& files,
                         std::int32_t world_size);
  // Adds entries that the metadata does not describe: one entry when the ranks agree, otherwise one per rank.
  // `described`: the item's tensors in the metadata, as they were added. It is not used after the first new entry.
  result<void> add_rest(const std::string& key, const std::vector<opened_part>& parts,
                        std::span<const tensor_entry> described = {});
  // Reports an object at the place of a tensor that the metadata describes.
  void report_object(const tensor_entry& expected, const occurrence& found);
  // Adds the entry of one name. `has_below`: other entries are below it.
  result<void> add_occurrences(std::vector<occurrence> found, bool has_below, const std::string& key);
  tree_path where_of(const occurrence& one, const std::string& key);
  result<bool> are_same(const std::vector<occurrence>& found);
  // Removes the placeholders of ranks that lack an entry which other ranks have. Placeholders are empty dicts above
  // entries, files with an empty dict, and None in place of a tensor in a list.
  result<std::vector<occurrence>> filled(const std::vector<occurrence>& found, bool has_below);
  result<bool> is_same(const occurrence& a, const occurrence& b);
  result<void> add_one(const occurrence& one, const tree_path& where);
  error located(error problem) const;

  open_options options_;
  read_budget budget_;
  std::unordered_map<std::int32_t, inner_box> inner_boxes_;  // chunks that are a box inside their file's tensor
  std::set<std::string> differing_;
  std::size_t unread_descriptions_ = 0;  // tensors that were skipped after too many problems
};

// Encodes the steps of a path from `from` on, to compare paths of the metadata and of files. Each step's length
// precedes its text, because names may hold any characters.
std::string joined(const tree_path& where, std::size_t from);

}  // namespace shardmesh::torch_checkpointing
