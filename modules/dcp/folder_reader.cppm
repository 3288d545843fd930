// SPDX-License-Identifier: Apache-2.0
// Not exported: the reader of one DCP folder. Bodies: `folder_reader.cpp` has its description, `item_reading.cpp` reads
// items, `item_checks.cpp` checks and copies them, and `opaque_items.cpp` finds tensors of unknown representation.
module shardmesh.dcp:folder_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.pickle;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :item_runs;
import :metadata;
import :reader;

namespace shardmesh::dcp {

class folder_reader final : public checkpoint_reader, public torch_file::archived_objects {
 public:
  folder_reader(std::filesystem::path folder, metadata description, const open_options& options,
                std::shared_ptr<read_budget> budget);

  // Counts chunks that repeat an item: many of them would make a small file large. After a refusal here, no chunk is
  // read or rewritten.
  void check_repeats();

  // Takes the files that the metadata names from these sources instead of the folder.
  void provide(const file_sources& files);

  // Keeps a reader of the items that the catalog leaves out.
  void keep_copies(std::unique_ptr<folder_reader> copies) { copies_ = std::move(copies); }
  checkpoint_reader* copies() const { return copies_.get(); }

  std::span<const std::int32_t> shared_chunks() const { return shared_chunks_; }

  const dcp::extras& extras() const { return extras_; }
  const pickle::used_names* names_of(const std::filesystem::path& file) const;

  // Shows Megatron's additions to the folder as Megatron sees them; returns `plain` itself when there are none.
  // `common`: the bytes of common.pt, if it is not a file of the folder.
  static result<std::unique_ptr<checkpoint_reader>> with_megatron(std::unique_ptr<folder_reader> plain,
                                                                  const open_options& options,
                                                                  std::shared_ptr<const byte_source> common = {});

  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  result<object_value> read_object(std::size_t index) override;
  result<torch_file::opened_object> open_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override;
  // A copy of such an entry is a copy of its archive, so every record of the archive is checked.
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;
  result<std::optional<digest128>> content_of(const whole_entry& entry) override;
  void identify_opaque_tensors() override;
  result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place) override;

 private:
  using place_key = std::array<std::int64_t, 4>;
  static place_key key_of(const stored_range& place);
  static std::string name_of(const stored_range& place);
  torch_file::item_options item_options() const;
  const stored_range& first_place(const tensor_entry& tensor) const;

  // Complete an error with the key, the file, and the box of the chunk.
  error name_in(error e, const std::string& key, const stored_range& place);
  error describe(error e, const tensor_entry& tensor, std::int32_t chunk);

  // Returns the item's bytes, decoded when it has a transform.
  result<std::shared_ptr<const byte_source>> item_source_of(const stored_range& place);
  result<opened_chunk> open_item(const tensor_entry& tensor, std::int32_t chunk);
  // Counts elements that an expanded view repeats: little is stored, but much would be read.
  result<void> pay_for_repeats(const opened_chunk& opened, std::int32_t chunk);
  // Returns the bytes to be copied, checked: a damaged record must not get a fresh checksum.
  result<std::vector<std::byte>> archive_of(const stored_range& place);
  // Returns the number of bytes with and without checksums in an item that is copied verbatim.
  result<std::pair<std::int64_t, std::int64_t>> check_item(const stored_range& place, bool quick);
  void identify(std::span<tensor_entry* const> tensors);

  dcp::extras extras_;
  std::unique_ptr<folder_reader> copies_;                // null: none
  std::map<std::string, error, std::less<>> conflicts_;  // keys under which ranks hold different values
  std::map<std::string, pickle::used_names, std::less<>> names_;
  std::vector<std::int32_t> shared_chunks_;  // see metadata::shared_chunks
  folder_files files_;
  chunk_cache cache_;
  std::shared_ptr<read_budget> budget_;
  bool is_identified_ = false;  // whether `identify_opaque_tensors` was called
  item_runs runs_{files_};
  std::mutex repeated_lock_;
  std::optional<std::pair<place_key, object_value>>
      repeated_value_;  // optional: no key can mean "none", because an entry without a place has a key as well
  std::pair<place_key, std::shared_ptr<const byte_source>> decoded_{{-1, 0, 0, 0}, nullptr};
  std::set<std::int32_t> paid_;  // chunks whose repeats were counted
};

}  // namespace shardmesh::dcp
