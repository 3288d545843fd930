// SPDX-License-Identifier: Apache-2.0
// forwarding_reader: a checkpoint_reader that shows another's entries under its own names: with other sizes, taken
// apart, put together, converted. What an entry is made of has an origin there, and what is asked of it is asked of
// that. Readers that show one other derive from it. Not here: tensors of several readers' pieces (composed_reader).
export module shardmesh.catalog:forwarding_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import :entries;
import :reader;

export namespace shardmesh {

/// A chunk of the reader that is shown; `chunk` -1: none of its chunks.
struct inner_chunk {
  std::int32_t tensor = 0;  // index into its catalog
  std::int32_t chunk = -1;  // its number there
};

/// One opened checkpoint, the inner one, seen differently. Begins with its description, files, texts and objects;
/// whoever derives from it adds the tensors, each with its origin, and overrides what gives out entries that have none.
class forwarding_reader : public checkpoint_reader {
 public:
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  /// \pre the object has an origin; likewise `object_archive`
  result<object_value> read_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  const checkpoint_reader& stored() const override { return inner_->stored(); }
  std::optional<shown_entry> shown(const whole_entry& entry) const override;
  void identify_opaque_tensors() override;
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override;
  /// errc::unsupported for a chunk without an origin.
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override;
  result<void> finish_checks() override { return inner_->finish_checks(); }
  /// Each origin once; entries without one are passed over.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;

 protected:
  /// `inner` must outlive this.
  explicit forwarding_reader(checkpoint_reader& inner);
  explicit forwarding_reader(std::unique_ptr<checkpoint_reader> inner);

  checkpoint_reader& inner() const { return *inner_; }

  /// A tensor without chunks; those that follow are its own. `from`: index into the inner catalog, where it is one of
  /// that's tensors.
  void add_tensor(tensor_entry entry, std::optional<std::size_t> from);
  /// A chunk of the last tensor. Preconditions: as of `catalog::add_chunk`.
  void add_chunk(const box& where, const stored_range& place, const inner_chunk& from);
  /// A chunk of the last tensor that lies where the inner one does.
  void add_chunk(const box& where, const inner_chunk& from);
  /// An inner tensor as it is, all its chunks with it.
  void add_whole_tensor(std::size_t tensor);
  void add_object(object_entry entry, std::optional<std::size_t> from);
  /// Forgets the objects that it began with.
  void clear_objects();

  /// Index into the inner catalog.
  std::optional<std::size_t> origin_of_tensor(std::size_t index) const { return tensors_[index]; }
  std::optional<std::size_t> origin_of_object(std::size_t index) const { return objects_[index]; }
  const inner_chunk& origin_of_chunk(std::int32_t chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
  /// The error with the key, and with the checkpoint's path, where it names none.
  error located(error e, const std::string& key) const;

 private:
  std::unique_ptr<checkpoint_reader> owned_;  // null: somebody else's
  checkpoint_reader* inner_;
  std::vector<std::optional<std::size_t>> tensors_;  // one per tensor
  std::vector<std::optional<std::size_t>> objects_;  // one per object
  std::vector<inner_chunk> chunks_;                  // one per chunk
};

}  // namespace shardmesh
