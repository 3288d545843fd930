// SPDX-License-Identifier: Apache-2.0
// Not exported: storage_data of DCP metadata: the places of chunks' and objects' bytes. Their descriptions are in
// `metadata`.
module shardmesh.dcp:storage_data;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import :parse_account;

namespace shardmesh::dcp {

// Hashes strings, so that a view can look one up.
struct string_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using text_map = std::unordered_map<std::string, Value, string_hash, std::equal_to<>>;

// By key, which is a view into the graph: a tensor's index in the catalog, or -1 minus an object's index.
using entry_numbers = std::unordered_map<std::string_view, std::int64_t>;

class storage_data_reader {
 public:
  /// `contents` has its entries and chunks already; the reader sets their places.
  storage_data_reader(catalog& contents, const entry_numbers& entries, parse_account& account)
      : contents_(contents), entries_(entries), account_(account) {}
  /// Reads one item of the dict: a MetadataIndex and a _StorageInfo.
  void read(pickle::value index, pickle::value info);
  /// Checks, after the last item, that every chunk with elements and every object has a place.
  void check_complete() const;

 private:
  std::optional<stored_range> read_info(std::string_view key, pickle::value info);
  std::int32_t file_number(std::string_view relative);
  std::optional<std::int32_t> transform_number(std::string_view key, pickle::value transforms);
  std::optional<std::int32_t> find_chunk(std::size_t tensor, const extents& at, std::optional<std::int64_t> hint);

  catalog& contents_;
  const entry_numbers& entries_;
  parse_account& account_;
  text_map<std::int32_t> files_, transforms_;
  std::unordered_map<std::size_t, std::map<extents, std::int32_t>> by_offset_;
};

}  // namespace shardmesh::dcp
