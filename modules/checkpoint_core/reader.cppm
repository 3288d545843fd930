// SPDX-License-Identifier: Apache-2.0
// One opened checkpoint of any format. Formats derive from `checkpoint_reader`; everything above (load, verify,
// convert, reshard, diff) sees only this interface.
export module shardmesh.checkpoint_core:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import :entries;
import :file_maps;
import :stored_tensor;

export namespace shardmesh {

/// An opened chunk and the location of its elements. Chunks of the same file share `source`.
struct opened_chunk {
  std::shared_ptr<const byte_source> source;
  stored_tensor tensor;
  bool reads_in_order = false;  // compressed: a read that goes back starts over
  std::int64_t crc_begin = 0;   // range of `source` that `crc32` covers; length 0: no checksum is stored
  std::int64_t crc_length = 0;
  std::uint32_t crc32 = 0;
  std::optional<digest128> digest;  // XXH3-128 of the stored elements, in files that shardmesh wrote
  std::int64_t item_begin = 0;      // the whole item's range of `source`; length 0: the item is stored encoded
  std::int64_t item_length = 0;
};

/// An entry that is not read as elements: an object, or a tensor of an unknown representation.
struct whole_entry {
  bool is_tensor = false;
  std::size_t index = 0;  // into the catalog's tensors or objects
};

class checkpoint_reader;

/// An entry of a reader that another reader shows.
struct shown_entry {
  checkpoint_reader* reader = nullptr;
  whole_entry entry;
};

struct check_options {
  bool quick = false;  // opens everything, but compares no checksums
  int threads = 0;     // 0: all cores
  std::size_t max_problems = 1000;
};

/// The outcome of checking entries.
struct check_outcome {
  std::vector<error> problems;         // the first ones, in the order of the entries; each names key and file
  std::int64_t more_problems = 0;      // beyond check_options::max_problems
  std::int64_t checked_bytes = 0;      // covered by a checksum that was compared
  std::int64_t unchecked_entries = 0;  // entries that hold bytes without a checksum
};

/// An object's value, as `inspect` shows it.
struct object_value {
  std::string kind;  // "int", "str", "dict", ... "opaque"
  std::string type;  // Python's type, "builtins.int"
  std::string json;  // the value as JSON, with the tags of docs/formats.md; {"$other":TYPE} for opaque
  /// Tensors inside, with the keys that they get when a conversion to a format without pickles makes them entries.
  std::vector<tensor_entry> tensors{};
};

/// Options for opening a checkpoint. The limits bound the number of open files, and the memory that a file can demand
/// by claiming more than it holds.
struct open_options {
  std::size_t max_open_files = 128;  // at a time; never more than a fifth of the process's limit
  read_limits limits = {};           // on the cost of reading; safetensors files have limits of their own
  /// When not empty: the only keys that will be requested. A DCP reader skips the description of all other keys, and
  /// its catalog has few or none of them. In formats that gain nothing by this, the catalog has all keys.
  std::vector<std::string> only_keys = {};
  /// For DCP folders whose ranks saved without collectives, and so may hold different values under one key: the rank
  /// whose values are read. Without a rank, opening the checkpoint warns of such a key, and reading it is a conflict
  /// (errc::disagreement).
  std::optional<std::int32_t> rank = {};
  /// Shows each rank's value of such a key as an entry KEY@RANK.
  bool keys_at_ranks = false;
  /// The pool that opens files, for programs that keep many checkpoints open. Without it, each checkpoint has its own
  /// pool of `max_open_files`.
  std::optional<file_pool> files = {};
  /// Limits of `open`, `open_checkpoint`, `open_parts`, and `open_delta`: a duration or a time point
  /// (errc::deadline_exceeded), and a cancellation (errc::cancelled). They end requests to stores; a local file is read
  /// to its end first. The `open` of a single format ignores them, and reads of the opened checkpoint have their own.
  time_limit within = {};
  std::stop_token cancel = {};

  /// Returns the limits of the call.
  call_options call() const { return {.within = within, .cancel = cancel}; }
  /// Returns `files`, or a new pool.
  file_pool pool() const { return files ? *files : file_pool(max_open_files); }
};

/// An opened checkpoint of any format: its contents, and access to its chunks and objects. `open_checkpoint` creates
/// one; `load`, `verify`, `convert`, `reshard`, and `diff` read through it. Formats derive from it.
/// Source: torch.distributed.checkpoint.StorageReader plays this role in PyTorch
class checkpoint_reader {
 public:
  virtual ~checkpoint_reader() = default;
  const catalog& contents() const { return contents_; }
  /// Returns the path from which the checkpoint was opened.
  const std::filesystem::path& path() const { return path_; }
  /// Returns oddities that leave the checkpoint readable, one line each.
  const std::vector<error>& warnings() const { return warnings_; }
  /// Returns defects that were found in the description and leave the rest readable.
  const std::vector<error>& problems() const { return problems_; }
  /// Returns notes for the user about entries that are not stored as they are listed, one line each.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Returns the number of tensors in the source that no entry names because no conversion can carry them: constants of
  /// a TorchScript archive, and buffers that are not persistent. A note lists them.
  std::int64_t unread_tensors() const { return unread_tensors_; }

  /// Opens a chunk, numbered over all tensors, and checks it against the catalog: dtype, sizes, storage. Thread-safe;
  /// recently opened chunks are cached. Errors name key, file, and box.
  virtual result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) = 0;
  /// Reads an object's value. `index` is its position in the catalog.
  virtual result<object_value> read_object(std::size_t index) = 0;
  /// Returns the object as a complete `torch.save` archive, as a DCP item holds it.
  virtual result<std::vector<std::byte>> object_archive(std::size_t index) = 0;
  /// Returns the reader that lists the entries as they are stored, when this reader shows parts of them; otherwise this
  /// reader.
  virtual const checkpoint_reader& stored() const { return *this; }
  /// Returns the entry of another reader that this entry equals or is part of; nothing when the entry is this reader's
  /// own.
  virtual std::optional<shown_entry> shown(const whole_entry& entry) const;
  /// Opens one chunk of every tensor to find tensors of an unknown representation (`tensor_entry::opaque_type`).
  virtual void identify_opaque_tensors() {}
  /// Returns the decoded bytes of an item.
  /// \errors errc::unsupported for formats without items; each names the file
  virtual result<std::shared_ptr<const byte_source>> item_bytes(const stored_range& place);
  /// Returns an opaque tensor's chunk verbatim, when the format can provide it.
  /// \errors errc::checksum_mismatch when the chunk is damaged, as in `object_archive`: a copy must not give damaged
  ///         bytes a fresh checksum
  virtual result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk);
  /// Compares all data of these entries with their checksums: every record of their archives, and the storages of
  /// tensors inside them.
  /// Cost: reads their bytes once, unless `quick`; bytes that entries share are read once.
  virtual check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options);
  /// Returns a digest of the entry's contents (types, plain values, storages' bytes), which does not depend on the file
  /// that holds them. Returns nothing when the format keeps only a type's name. Cost: reads the entry's bytes once.
  virtual result<std::optional<digest128>> content_of(const whole_entry& entry);

  /// Finishes the checksums of chunks that were read only in part, when this reader checks the data that it returns
  /// (`dequantized` with `check_sums`). `load`, `diff`, and every writer call this before they report success.
  /// \errors errc::checksum_mismatch, naming key, file, and box
  virtual result<void> finish_checks() { return {}; }

  /// Returns the mappings of the checkpoint's files that were read with `read_options::map_rows`.
  file_maps& maps() { return maps_; }

  /// Returns the tensor (index into the catalog) to which a chunk belongs.
  /// Cost: O(log tensors); O(n log n) for the first call.
  std::size_t tensor_of_chunk(std::int32_t chunk) const;

 protected:
  /// Copies the description of `shown`: path, files, objects, texts, warnings, problems, and notes, but not its
  /// tensors.
  void describe_as(const checkpoint_reader& shown);
  /// Checks the entries one by one, on several threads. `check` returns how many bytes had a checksum and how many had
  /// none.
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
  // Built on first use: the tensors that have chunks, by first chunk.
  mutable std::once_flag indexed_;
  mutable std::vector<std::pair<std::int32_t, std::size_t>> by_first_chunk_;
};

class chunk_checks;
class recorded_sums;

/// The reader's chunks as an item_source for the executor. An item's slot is the chunk's number. Cheap to construct.
class chunk_source {
 public:
  explicit chunk_source(checkpoint_reader& reader, read_options options = {});
  /// Creates a source that compares every chunk it reads with the chunk's checksums: its own, and those of `record`,
  /// when the folder has one. The source returns the chunk's last byte only after the comparison. A chunk that is read
  /// front to back, as the executor does when it rewrites items, is summed during these reads; any other chunk is
  /// summed in a separate pass.
  /// \errors errc::checksum_mismatch, naming key, file, and box
  static chunk_source checking(checkpoint_reader& reader, std::shared_ptr<const recorded_sums> record = {},
                               read_options options = {});
  chunk_source(chunk_source&&) noexcept;
  ~chunk_source();
  result<void> read(item_id item, const box& part, const tensor_view& to);
  bool reads_in_order(item_id item);
  /// Returns whether small reads cost much more: the chunk is computed from input in another order, as in a transpose,
  /// or is a compressed array in another order, or lies on a server.
  bool prefers_large_reads(item_id item);
  /// Finishes the check of each chunk that was read front to back, but not to its end. Call it before using the
  /// elements.
  /// \errors errc::checksum_mismatch, naming key, file, and box
  /// Cost: reads the rest of those chunks.
  result<void> finish();

 private:
  const tensor_entry& tensor_of(std::int32_t chunk) const;
  checkpoint_reader* reader_;
  read_options options_;
  std::unique_ptr<chunk_checks> checks_;  // null: no checks
};

}  // namespace shardmesh
