// SPDX-License-Identifier: Apache-2.0
// Not exported: copies entries of several catalogs into one, and renumbers files and transforms. Bodies:
// `catalog_merge.cpp` merges what all ranks share, and `rank_view.cpp` shows the entries as one rank sees them.
module shardmesh.dcp:catalog_merge;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :held_entries;
import :metadata;
import :own_lists;
import :rank_comparison;

namespace shardmesh::dcp {

// Numbers by key.
using key_numbers = std::unordered_map<std::string_view, std::size_t>;

class catalog_merge {
 public:
  // `rules` and `stored` must outlive the result.
  // \param own     the description of the preferred rank; null: there is none
  // \param stored  the keys of all ranks; complete when the first entries are added
  catalog_merge(const merge_rules& rules, const catalog* own, const key_numbers& stored);

  // Lists a rank's files. The entries of all ranks must follow.
  void add_files(const catalog& from);

  // Adds the entries of one key, in the order of the ranks.
  void add(const std::string& key, holders all);

  // Returns what the preferred rank's view leaves out, one line each.
  std::vector<std::string> notes() const;

  // Returns a problem for each item that cannot be compared.
  const std::vector<error>& incomparable() const { return comparison_.problems(); }

  catalog merged, copies;
  std::vector<std::int32_t> shared_chunks;  // see metadata::shared_chunks
  std::vector<error> problems, warnings;
  std::map<std::string, error, std::less<>> conflicts;

 private:
  // Identifies an item.
  using place_key = std::array<std::int64_t, 4>;
  static place_key key_of(const stored_range& place);

  std::int32_t file_number(const std::string& file);
  stored_range renumber(const catalog& from, stored_range place);
  void add_merged(const holders& all, const std::string& key);
  void add_copies(const held_entry& entry, std::set<place_key>& places);
  void add_seen_by(const holders& all, const held_entry& own, const std::string& key);
  void add_object(const held_entry& entry, const std::string& key);
  void begin_tensor(const tensor_entry& tensor, const std::string& key);
  // Finds the chunks that the tensors from `first_tensor` on, the entries KEY@RANK of one key, share. An item with
  // several boxes is not shared: checks report it.
  void note_shared_chunks(std::size_t first_tensor);
  void add_conflict(const std::string& key, const holders& all, error conflict);

  const merge_rules& rules_;
  const key_numbers& stored_;
  rank_comparison comparison_;
  own_lists own_lists_;                     // of the preferred rank
  std::vector<std::string> excluded_keys_;  // of other ranks, see own_lists::exclude
  std::vector<std::string> overlapping_keys_;
  std::int64_t overlapping_chunks_ = 0;  // of other ranks, in the way of the rank's own
  std::map<std::string, std::int32_t> files_, transforms_;
};

}  // namespace shardmesh::dcp
