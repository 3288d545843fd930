// SPDX-License-Identifier: Apache-2.0
// checkpoint_reader: one opened checkpoint of any format. The formats derive from it; everything above (load, verify,
// convert, reshard, diff) sees only this.
export module shardmesh.checkpoint:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import :catalog;
import :dcp_metadata;
import :read_limits;
import :storage;
import :stored_tensor;
import :torch_item;

export namespace shardmesh {

/// A chunk that was opened: where its elements are. `source` is shared with other chunks of the same file.
struct opened_chunk {
  std::shared_ptr<const byte_source> source;
  stored_tensor tensor;
  bool reads_in_order = false;  // compressed
  std::int64_t crc_begin = 0;   // range of `source` that `crc32` is of; length 0: no checksum is stored
  std::int64_t crc_length = 0;
  std::uint32_t crc32 = 0;
  std::optional<digest128> digest;  // XXH3-128 of the stored elements, when the file was written by shardmesh
};

/// An object's meaning, as `inspect` shows it.
struct object_value {
  std::string kind;  // "int", "str", "dict", ... "opaque"
  std::string type;  // Python's, "builtins.int"
  std::string json;  // the value in the tags of docs/formats.md; {"$other":TYPE} for opaque
  /// Tensors inside, with the keys that they get where the object is taken apart: convert to safetensors and hf.
  std::vector<tensor_entry> tensors{};
};

/// What an object lies in: its archive and that archive's bytes.
struct opened_object {
  std::shared_ptr<const byte_source> source;
  std::shared_ptr<const torch_item> item;
  std::shared_ptr<read_budget> budget;  // of the checkpoint
  std::string place;                    // names the item there
};

struct open_options {
  std::size_t max_open_files = 128;
  read_limits limits = {};
};

class checkpoint_reader {
 public:
  virtual ~checkpoint_reader() = default;
  const catalog& contents() const { return contents_; }
  /// The path it was opened from.
  const std::filesystem::path& path() const { return path_; }
  /// What is odd about the checkpoint without making it unreadable, one line each.
  const std::vector<error>& warnings() const { return warnings_; }
  /// Defects that were found while the description was read and that leave the rest readable.
  const std::vector<error>& problems() const { return problems_; }
  /// What a user should know of entries that are not stored as they are listed, one line each.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Opens a chunk (number over all tensors) and checks it against the catalog: dtype, sizes, storage.
  /// Thread-safe; recently opened chunks are kept. Errors name key, file and box.
  virtual result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) = 0;
  /// The meaning of an object (index into the catalog).
  virtual result<object_value> read_object(std::size_t index) = 0;
  /// The object as a complete `torch.save` archive: what a DCP item holds.
  virtual result<std::vector<std::byte>> object_archive(std::size_t index) = 0;
  /// An object (index into the catalog) for a look inside. errc::unsupported for formats whose objects hold no tensors.
  virtual result<opened_object> open_object(std::size_t index);
  /// What the metadata holds beside entries; empty for formats without.
  virtual const dcp_extras& extras() const;
  /// Opens one chunk of every tensor to learn which are of an unknown representation (tensor_entry::opaque_type).
  virtual void identify_opaque_tensors() {}
  /// The bytes of an item, decoded. errc::unsupported for formats without items; errors name the file.
  virtual result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place);
  /// An opaque tensor's chunk, verbatim, when the format can give it.
  virtual result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk);

 protected:
  catalog contents_;
  std::filesystem::path path_;
  std::vector<error> warnings_, problems_;
  std::vector<std::string> notes_;
};

/// Opens a DCP folder, a .pt file, a safetensors file or a Hugging Face folder, whichever it is.
/// \errors errc::io; errc::bad_format when it is none of them; errc::incomplete_save for a folder of .distcp files
///         without metadata; the format's own.
result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const std::filesystem::path& path,
                                                           const open_options& options = {});

class checked_source;

/// The reader's chunks as an item_source for the executor: an item's slot is the chunk's number.
class chunk_source {
 public:
  /// With `check_sums`, a chunk that is read front to back (as the executor does when it rewrites items) is held
  /// against its stored checksum on the way; errc::checksum_mismatch names key, file and box.
  explicit chunk_source(checkpoint_reader& reader, read_options options = {}, bool check_sums = false);
  ~chunk_source();
  chunk_source(const chunk_source&) = delete;
  result<void> read(item_id item, const box& part, const tensor_view& to);
  bool reads_in_order(item_id item);

 private:
  const tensor_entry& tensor_of(std::int32_t chunk) const;
  std::shared_ptr<checked_source> checked(std::int32_t chunk, const std::shared_ptr<const opened_chunk>& opened);
  checkpoint_reader& reader_;
  read_options options_;
  std::vector<std::int32_t> first_chunks_;  // of the tensors that have chunks, ascending
  std::vector<std::size_t> tensor_indices_;
  bool check_sums_;
  std::mutex lock_;
  std::unordered_map<std::int32_t, std::shared_ptr<checked_source>> checked_;  // chunks that are being read
};

}  // namespace shardmesh
