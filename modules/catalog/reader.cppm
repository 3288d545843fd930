// SPDX-License-Identifier: Apache-2.0
// checkpoint_reader: one opened checkpoint of any format. The formats derive from it; everything above (load, verify,
// convert, reshard, diff) sees only this.
export module shardmesh.catalog:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import :entries;
import :file_maps;
import :stored_tensor;

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
  std::int64_t item_begin = 0;      // the whole item's range of `source`; length 0: it is stored encoded
  std::int64_t item_length = 0;
};

/// An entry that is not read as elements: an object, or a tensor of an unknown representation.
struct whole_entry {
  bool is_tensor = false;
  std::size_t index = 0;  // into the catalog's tensors or objects
};

class checkpoint_reader;

/// An entry of one of the readers that another shows.
struct shown_entry {
  checkpoint_reader* reader = nullptr;
  whole_entry entry;
};

struct check_options {
  bool quick = false;  // opens what there is, but compares no checksums
  int threads = 0;     // 0: all cores
  std::size_t max_problems = 1000;
};

/// What checking some entries came to.
struct check_outcome {
  std::vector<error> problems;         // the first of them, in the order of the entries; each names key and file
  std::int64_t more_problems = 0;      // beyond check_options::max_problems
  std::int64_t checked_bytes = 0;      // covered by a checksum that was compared
  std::int64_t unchecked_entries = 0;  // that hold bytes without a checksum
};

/// An object's meaning, as `inspect` shows it.
struct object_value {
  std::string kind;  // "int", "str", "dict", ... "opaque"
  std::string type;  // Python's, "builtins.int"
  std::string json;  // the value in the tags of docs/formats.md; {"$other":TYPE} for opaque
  /// Tensors inside, with the keys that they get where the object is taken apart: convert to safetensors and hf.
  std::vector<tensor_entry> tensors{};
};

/// What reading an opened checkpoint may cost: open files, and memory where files say more of themselves than they
/// hold.
struct open_options {
  std::size_t max_open_files = 128;  // at a time; never more than a fifth of what the process may open
  read_limits limits = {};           // of DCP folders and files of torch.save
  /// Where not empty, nobody asks for entries of other keys: what a DCP folder says of them is passed over, and its
  /// catalog has few others or none. Formats that gain nothing by it show everything.
  std::vector<std::string> only_keys = {};
  /// Of DCP folders whose ranks saved without collectives, and may hold different values under one key: the rank whose
  /// values are read. Without a rank such a key is a conflict (errc::disagreement when it is read, a warning before).
  std::optional<std::int32_t> rank = {};
  /// Shows each rank's value of such a key as an entry KEY@RANK.
  bool keys_at_ranks = false;
  /// Where files are opened; without it each checkpoint has a pool of its own, of `max_open_files`. For programs that
  /// keep many checkpoints open.
  std::optional<file_pool> files = {};

  /// `files`, or a new pool.
  file_pool pool() const { return files ? *files : file_pool(max_open_files); }
};

/// An opened checkpoint of any format: what it holds (`contents`), and access to its chunks and objects.
/// `open_checkpoint` makes one; `load`, `verify`, `convert`, `reshard` and `diff` read through it. Formats derive from
/// it.
/// Source: torch.distributed.checkpoint.StorageReader has this part in PyTorch
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
  /// Tensors of the source that no entry names, as nothing can carry them: constants of a TorchScript archive, buffers
  /// that are not persistent. A note says which.
  std::int64_t unread_tensors() const { return unread_tensors_; }

  /// Opens a chunk (number over all tensors) and checks it against the catalog: dtype, sizes, storage.
  /// Thread-safe; recently opened chunks are kept. Errors name key, file and box.
  virtual result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) = 0;
  /// The meaning of an object (index into the catalog).
  virtual result<object_value> read_object(std::size_t index) = 0;
  /// The object as a complete `torch.save` archive: what a DCP item holds.
  virtual result<std::vector<std::byte>> object_archive(std::size_t index) = 0;
  /// The reader whose entries are what is stored, where this one shows parts of them; else itself.
  virtual const checkpoint_reader& stored() const { return *this; }
  /// The entry of another reader that this one is, or that it is a part of; nothing where it is this reader's own.
  virtual std::optional<shown_entry> shown(const whole_entry& entry) const;
  /// Opens one chunk of every tensor to learn which are of an unknown representation (tensor_entry::opaque_type).
  virtual void identify_opaque_tensors() {}
  /// The bytes of an item, decoded. errc::unsupported for formats without items; errors name the file.
  virtual result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place);
  /// An opaque tensor's chunk, verbatim, when the format can give it. errc::checksum_mismatch when it is damaged, as
  /// for `object_archive`: a copy must not give it a fresh checksum.
  virtual result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk);
  /// Holds everything that these entries consist of against its checksums: every record of their archives, the storages
  /// of tensors inside them. Cost: reads their bytes once, unless `quick`; what entries share is read once.
  virtual check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options);
  /// A digest of what the entry is made of (types, plain values, storages' bytes) that does not depend on the file that
  /// it lies in; nothing when the format keeps no more of it than a type's name. Cost: reads its bytes once.
  virtual result<std::optional<digest128>> content_of(const whole_entry& entry);

  /// Compares with their checksums the chunks that readings began and did not end, where this reader checks what it
  /// gives out (`dequantized` with `check_sums`): `load`, `diff` and every writer ask for it before they succeed.
  /// errc::checksum_mismatch names key, file and box.
  virtual result<void> finish_checks() { return {}; }

  /// Its files that are mapped: those that `read_options::map_rows` was used for.
  file_maps& maps() { return maps_; }

  /// The tensor (index into the catalog) that a chunk belongs to. Cost: O(log tensors); the first call O(n log n).
  std::size_t tensor_of_chunk(std::int32_t chunk) const;

 protected:
  /// Is described as `shown` is: path, files, objects, texts, what is odd about it. Its tensors are not taken over.
  void describe_as(const checkpoint_reader& shown);
  /// Checks the entries one by one, on several threads; of each the bytes that had a checksum and those that had none.
  check_outcome check_each(
      std::span<const whole_entry> entries, const check_options& options,
      function_ref<result<std::pair<std::int64_t, std::int64_t>>(const whole_entry& entry)> check) const;

  catalog contents_;
  std::filesystem::path path_;
  std::vector<error> warnings_, problems_;
  std::vector<std::string> notes_;
  std::int64_t unread_tensors_ = 0;

 private:
  file_maps maps_;
  // Made when it is first asked for: the tensors that have chunks, by their first.
  mutable std::once_flag indexed_;
  mutable std::vector<std::pair<std::int32_t, std::size_t>> by_first_chunk_;
};

class chunk_checks;
class recorded_sums;

/// The reader's chunks as an item_source for the executor: an item's slot is the chunk's number. Cheap to make.
class chunk_source {
 public:
  explicit chunk_source(checkpoint_reader& reader, read_options options = {});
  /// Every chunk that is read is held against the checksums that there are of it (its own, and those of `record`, when
  /// the folder has one) before its last byte is given out: on the way where it is read front to back, as the executor
  /// does when it rewrites items, otherwise in a pass of its own. errc::checksum_mismatch names key, file and box.
  static chunk_source checking(checkpoint_reader& reader, std::shared_ptr<const recorded_sums> record = {});
  chunk_source(chunk_source&&) noexcept;
  ~chunk_source();
  result<void> read(item_id item, const box& part, const tensor_view& to);
  bool reads_in_order(item_id item);
  /// Compares what was only begun: a chunk whose first rows were read front to back, and no more. Call it before the
  /// elements are used. errc::checksum_mismatch names key, file and box. Cost: reads the rest of those chunks.
  result<void> finish();

 private:
  const tensor_entry& tensor_of(std::int32_t chunk) const;
  checkpoint_reader* reader_;
  read_options options_;
  std::unique_ptr<chunk_checks> checks_;  // null: none are wanted
};

}  // namespace shardmesh
