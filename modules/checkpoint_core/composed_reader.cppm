// SPDX-License-Identifier: Apache-2.0
// Composes tensors from pieces of other checkpoints' tensors: a model in several files, the files of several ranks, or
// a flat buffer that is cut into parameters. Multi-file formats derive from `composed_reader` or fill one. Each format
// decides which pieces make up a tensor.
export module shardmesh.checkpoint_core:composed_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// A chunk of a composed tensor: the elements [first, first + volume(sizes)) of a chunk of a part's tensor, counted
/// row-major and viewed as a box of these sizes.
struct chunk_piece {
  std::size_t part = 0;
  std::size_t tensor = 0;  // index into the part's catalog
  std::int32_t chunk = 0;  // the chunk's number in the part, counted as `tensor_entry::first_chunk` counts
  std::int64_t first = 0;
  extents sizes;
};

/// Several opened checkpoints, the parts, seen as one. Its creator adds the parts, then the entries to show; a part's
/// other entries stay hidden. The parts' warnings, notes, and problems become those of the whole.
class composed_reader : public checkpoint_reader {
 public:
  composed_reader(checkpoint_format format, std::filesystem::path path);

  /// Adds a part and returns its number. The catalog lists the part's files as `folder` + their names in the part.
  std::size_t add_part(std::unique_ptr<checkpoint_reader> part, const std::string& folder = "");
  checkpoint_reader& part(std::size_t number) { return *parts_[number].reader; }
  std::size_t part_count() const { return parts_.size(); }

  /// Adds a tensor without chunks; the chunks added next belong to it.
  /// \errors errc::duplicate_key when an entry already has this key
  result<void> add_tensor(tensor_entry entry);
  /// Adds a chunk to the last tensor, at the box `where`, whose sizes equal the piece's.
  /// \errors errc::dtype_mismatch; errc::shape_mismatch; errc::out_of_bounds when the part's chunk lacks elements or
  ///         the box leaves the tensor; errc::overflow; each names the key and the part's file
  result<void> add_chunk(const box& where, const chunk_piece& from);
  /// Adds a part's tensor unchanged, with all its chunks, under this key and path. The tensor may be opaque.
  /// \errors errc::duplicate_key
  result<void> add_whole_tensor(std::string key, shardmesh::path where, std::size_t part, std::size_t tensor);
  /// Adds a part's object under this key and path.
  /// \errors errc::duplicate_key
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
  /// A tensor or object of a part.
  struct origin {
    std::size_t part = 0, index = 0;
  };
  const origin& origin_of_object(std::size_t index) const { return objects_[index]; }

 private:
  struct part_state {
    std::unique_ptr<checkpoint_reader> reader;
    std::int32_t first_file = 0;  // index of the part's first file in this catalog
    std::int32_t first_transform = 0;
  };
  stored_range place_here(std::size_t part, stored_range place) const;
  result<void> take_key(const std::string& key);

  std::vector<part_state> parts_;
  std::vector<chunk_piece> pieces_;            // one per chunk
  std::vector<std::optional<origin>> wholes_;  // one per tensor: the part's tensor that it shows whole, if any
  std::vector<origin> objects_;                // one per object
  std::set<std::string> keys_;
};

}  // namespace shardmesh
