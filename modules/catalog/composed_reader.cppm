// SPDX-License-Identifier: Apache-2.0
// composed_reader: tensors that are made of pieces of other checkpoints' tensors: a model in many files, ranks' files,
// a flat buffer that is cut into parameters. Formats of many files derive from it or fill one. Not here: which pieces a
// tensor has (the formats).
export module shardmesh.catalog:composed_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// A chunk of a composed tensor: elements [first, first + volume(sizes)) of a chunk of a part's tensor, counted
/// row-major, seen as a box of these sizes.
struct chunk_piece {
  std::size_t part = 0;
  std::size_t tensor = 0;  // index into the part's catalog
  std::int32_t chunk = 0;  // number in the part, as `tensor_entry::first_chunk` counts
  std::int64_t first = 0;
  extents sizes;
};

/// Several opened checkpoints, its parts, seen as one. Whoever makes it adds the parts and then what is to be seen of
/// them; nothing of a part is seen by itself. What the parts warn of, note and refuse is said of the whole.
class composed_reader : public checkpoint_reader {
 public:
  composed_reader(checkpoint_format format, std::filesystem::path path);

  /// The part's number. Its files are named `folder` + its own names in the catalog.
  std::size_t add_part(std::unique_ptr<checkpoint_reader> part, const std::string& folder = "");
  checkpoint_reader& part(std::size_t number) { return *parts_[number].reader; }
  std::size_t part_count() const { return parts_.size(); }

  /// A tensor without chunks; those that follow are its own. errc::duplicate_key when an entry has this key already.
  result<void> add_tensor(tensor_entry entry);
  /// A chunk of the last tensor, at the box `where`, whose sizes are the piece's.
  /// \errors errc::dtype_mismatch, errc::out_of_bounds (elements that the part's chunk has not, a box outside of the
  ///         tensor), errc::shape_mismatch; each names the key and the part's file
  result<void> add_chunk(const box& where, const chunk_piece& from);
  /// A part's tensor as it is, all its chunks with it, under `entry`'s key and path: also one of a representation that
  /// is not read as elements.
  result<void> add_whole_tensor(std::string key, shardmesh::path where, std::size_t part, std::size_t tensor);
  /// A part's object under this key and path.
  result<void> add_object(std::string key, shardmesh::path where, std::size_t part, std::size_t object);

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  result<object_value> read_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  std::optional<shown_entry> shown(const whole_entry& entry) const override;
  void identify_opaque_tensors() override;
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override;
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override;
  result<void> finish_checks() override;
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;

 protected:
  /// An entry of a part.
  struct origin {
    std::size_t part = 0, index = 0;
  };
  const origin& origin_of_object(std::size_t index) const { return objects_[index]; }

 private:
  struct part_state {
    std::unique_ptr<checkpoint_reader> reader;
    std::int32_t first_file = 0;  // of the part in our catalog
    std::int32_t first_transform = 0;
  };
  stored_range place_here(std::size_t part, stored_range place) const;
  result<void> take_key(const std::string& key);

  std::vector<part_state> parts_;
  std::vector<chunk_piece> pieces_;            // one per chunk
  std::vector<std::optional<origin>> wholes_;  // one per tensor: the part's tensor that it is
  std::vector<origin> objects_;                // one per object
  std::set<std::string> keys_;
};

}  // namespace shardmesh
