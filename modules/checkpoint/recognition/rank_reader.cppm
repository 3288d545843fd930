// SPDX-License-Identifier: Apache-2.0
// Not exported: the files of the ranks of one save as one checkpoint. Bodies: `rank_files.cpp` opens and groups the
// entries, and `rank_merge.cpp` merges those of one key.
module shardmesh.checkpoint:rank_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :rank_file_name;

namespace shardmesh {

// An entry of a rank's file: the part that the file became, and the index in its catalog.
struct held_entry {
  std::size_t part = 0, index = 0;
};

// All entries with one key, over all ranks.
struct key_entries {
  std::string key;
  std::vector<held_entry> tensors, objects;
};

class rank_reader final : public composed_reader {
 public:
  rank_reader(const std::filesystem::path& folder, rank_file_group group)
      : composed_reader(checkpoint_format::torch_files, folder), group_(std::move(group)) {}

  result<void> open(const open_options& options);

 private:
  const catalog& contents_of(std::size_t part) { return this->part(part).contents(); }
  const tensor_entry& tensor_of(const held_entry& held) { return contents_of(held.part).tensors[held.index]; }
  std::string file_of(std::size_t part) { return this->part(part).path().string(); }
  std::string name_of(std::size_t part) { return this->part(part).path().filename().string(); }
  error at(error problem, const std::string& key, std::size_t part);
  result<void> open_files(const open_options& options);
  result<void> check_complete(std::int64_t ranks) const;

  // Ranks that share a tensor know how many ranks share it. All must come from one save, and all must be present. A
  // rank may hold no shared tensor.
  result<void> check_ranks();

  // Groups entries by key, in the order of their first occurrence.
  std::vector<key_entries> gather();
  const shardmesh::path& where_of(const key_entries& entries);

  // Drops a rank's empty dict or list where other ranks have entries below it. A rank with another value there belongs
  // to a different save.
  result<void> drop_empty_containers(std::vector<key_entries>& all);
  // True for random states, which are each rank's own.
  static bool is_own_of_rank(const shardmesh::path& where);
  result<void> merge_tensors(const key_entries& entries);

  // True when all ranks hold equal elements for each box. Unequal dtypes or shapes are an error; for random states they
  // mean "false".
  result<bool> are_same_tensors(const key_entries& entries);
  error values_differ(const key_entries& entries, const held_entry& held);
  static error differing(const tensor_entry& a, const tensor_entry& b);
  result<void> merge_objects(const key_entries& entries);
  result<bool> are_same_objects(const held_entry& a, const held_entry& b);

  // Adds an entry for each rank.
  result<void> add_each(const std::vector<held_entry>& entries, bool is_tensor);

  rank_file_group group_;
  std::vector<std::int64_t> ranks_, meshes_;  // per part: its rank, and the number of ranks that share its tensors
};

}  // namespace shardmesh
