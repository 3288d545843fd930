// SPDX-License-Identifier: Apache-2.0
// Shows another reader's entries in another form: resized, split, recombined, or converted. Requests about an entry are
// forwarded to its origin in the other reader. Readers that show one other reader derive from `forwarding_reader`.
// Tensors made of several readers' pieces are in `composed_reader`.
export module shardmesh.checkpoint_core:forwarding_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// A chunk of the inner reader; `chunk` is -1 when there is no inner chunk.
struct inner_chunk {
  std::int32_t tensor = 0;  // index into the inner catalog
  std::int32_t chunk = -1;  // the chunk's number in the inner catalog
};

/// Shows one opened checkpoint, the inner one, with other entries. It starts with the inner description, files, texts,
/// and objects. A derived reader adds the tensors, each with its origin, and overrides the functions that read entries
/// without an origin.
class forwarding_reader : public checkpoint_reader {
 public:
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  /// \pre the object has an origin; the same holds for `object_archive`
  result<object_value> read_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  const checkpoint_reader& stored() const override { return inner_->stored(); }
  std::optional<shown_entry> shown(const whole_entry& entry) const override;
  void identify_opaque_tensors() override;
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override;
  /// \errors errc::unsupported for a chunk without an origin
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override;
  result<void> finish_checks() override { return inner_->finish_checks(); }
  /// Checks each origin once; skips entries without an origin.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;

 protected:
  /// The referenced `inner` must outlive this reader.
  explicit forwarding_reader(checkpoint_reader& inner);
  explicit forwarding_reader(std::unique_ptr<checkpoint_reader> inner);

  checkpoint_reader& inner() const { return *inner_; }

  /// Adds a tensor without chunks; the chunks added next belong to it. `from` is its origin, an index into the inner
  /// catalog; nothing when it has none.
  void add_tensor(tensor_entry entry, std::optional<std::size_t> from);
  /// Adds a chunk to the last tensor. Preconditions: as for `catalog::add_chunk`.
  void add_chunk(const box& where, const stored_range& place, const inner_chunk& from);
  /// Adds a chunk to the last tensor, at the inner chunk's place.
  void add_chunk(const box& where, const inner_chunk& from);
  /// Adds an inner tensor unchanged, with all its chunks.
  void add_whole_tensor(std::size_t tensor);
  void add_object(object_entry entry, std::optional<std::size_t> from);
  /// Removes all objects, including those taken from the inner reader.
  void clear_objects();

  /// Returns an index into the inner catalog; nothing without an origin.
  std::optional<std::size_t> origin_of_tensor(std::size_t index) const { return tensors_[index]; }
  std::optional<std::size_t> origin_of_object(std::size_t index) const { return objects_[index]; }
  const inner_chunk& origin_of_chunk(std::int32_t chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
  /// Adds the key and the checkpoint's path to an error that lacks them.
  error located(error e, const std::string& key) const;

 private:
  std::unique_ptr<checkpoint_reader> owned_;  // null when the caller owns the inner reader
  checkpoint_reader* inner_;
  std::vector<std::optional<std::size_t>> tensors_;  // one per tensor
  std::vector<std::optional<std::size_t>> objects_;  // one per object
  std::vector<inner_chunk> chunks_;                  // one per chunk
};

}  // namespace shardmesh
