// SPDX-License-Identifier: Apache-2.0
// Describes what a checkpoint holds, whatever its format: tensors, their chunks, objects, and files. The description is
// flat, for checkpoints of 2,000,000 chunks: a chunk takes 48 bytes, plus 16 per dimension. Reading is in `reader`.
export module shardmesh.checkpoint_core:entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;

namespace shardmesh {

// Maps keys to positions. The index is built on first use; several threads may use it at once. A copy starts without an
// index.
class key_index {
 public:
  key_index() = default;
  key_index(const key_index&) {}
  key_index& operator=(const key_index&) { return made_ = std::make_unique<state>(), *this; }
  ~key_index() = default;

  // Returns the position of the first entry with this key. Every call must pass the same entries.
  template <class Entry>
  std::optional<std::size_t> find(std::span<const Entry> entries, std::string_view key) const {
    std::call_once(made_->once, [&] {
      made_->positions.reserve(entries.size());
      for (std::size_t i = 0; i < entries.size(); ++i) made_->positions.emplace(entries[i].key, i);
    });
    const auto found = made_->positions.find(key);
    return found == made_->positions.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  struct state {
    std::once_flag once;
    std::unordered_map<std::string_view, std::size_t> positions;
  };
  std::unique_ptr<state> made_ = std::make_unique<state>();
};

}  // namespace shardmesh

export namespace shardmesh {

/// The format of an opened checkpoint. The format to write is a `target_format`.
enum class checkpoint_format : std::uint8_t {
  dcp,          // a folder of torch.distributed.checkpoint
  torch_file,   // a file of torch.save
  safetensors,  // one safetensors file
  hf,           // a Hugging Face folder of safetensors files
  torch_files,  // several files of torch.save that form one checkpoint: a model in parts, or a file for each rank
  deepspeed,    // a DeepSpeed folder: ZeRO 0 to 3
  torchsnapshot,
  torch_checkpointing,  // a folder of the package torch_checkpointing
  parts,                // a folder of several checkpoints, seen as one
  gguf,                 // one GGUF file
  npz,                  // NumPy's .npz archives and .npy files: one, or an MLX folder of weights.npz
  nemo,                 // one .nemo file
  delta                 // a checkpoint that `open_delta` makes of a base and the file of a delta
};
/// Returns the format's name: "dcp", "torch", "safetensors", "hf", "torch-files", "deepspeed", "torchsnapshot",
/// "torch-checkpointing", "parts", "gguf", "npz", "nemo", or "delta".
std::string_view name(checkpoint_format format);

/// Returns the rank that wrote a file, when the file's name states it: 3 for DCP's "__3_0.distcp", also in a
/// `sibling_file`.
std::optional<std::int32_t> rank_of_file(std::string_view file);

/// The location of a chunk's or object's bytes: a range of one of the catalog's files. `file` is -1 when the location
/// is unknown.
struct stored_range {
  std::int32_t file = -1;
  std::int32_t transform = 0;  // index into catalog::transforms; 0: none
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// PyTorch's TensorProperties without the dtype, as DCP metadata stores them.
struct stored_properties {
  std::string layout = "torch.strided";
  bool requires_grad = false;
  bool pin_memory = false;
  std::int32_t memory_format = 0;  // _MEM_FORMAT_ENCODING: 0 contiguous, 1 channels last, 2 preserve
  std::string foreign_dtype;       // PyTorch's name of a dtype that shardmesh lacks ("qint8"), else empty
  std::optional<extents> strides;  // since PyTorch 2.15: those of rank 0's part in memory; older versions store none
  friend bool operator==(const stored_properties&, const stored_properties&) = default;
};

/// A tensor. Its chunks are the entries [first_chunk, first_chunk + chunk_count) of the catalog's chunk arrays.
struct tensor_entry {
  std::string key;  // FQN as the format spells it; flattened and dotted in DCP
  path where;       // nested path where the format records one (DCP's planner_data, .pt files), else {key}; never empty
  dtype type = dtype::undefined;
  extents shape;
  std::int32_t first_chunk = 0;
  std::int32_t chunk_count = 0;
  stored_properties properties;
  std::string opaque_type;  // Python type of a tensor whose representation is unknown (an opaque tensor), else empty
  std::string opaque_kind;  // readable name of that representation: "sparse COO tensor"
};

/// An entry that is not a tensor. Its bytes are at `place` (DCP), or it lies inside the single pickle of a .pt file.
struct object_entry {
  std::string key;
  path where;  // as for a tensor
  stored_range place;
  /// For a .pt file: the number of tensors inside that no entry names, so that no conversion can carry them.
  std::int64_t hidden_tensors = 0;
};

/// Returns "model.weight: float32[128, 64]". A tensor that is not read as elements also shows its kind:
/// "w: sparse COO tensor float32[3, 3]".
std::string to_string(const tensor_entry& tensor);
/// Returns "epoch: object".
std::string to_string(const object_entry& object);

/// A text that a file's writer attached to it: an entry of safetensors' `__metadata__`. Texts that describe the file
/// itself (our checksums, PyTorch's sharding info) are excluded.
struct file_text {
  std::string key, value;
  std::int32_t file = -1;  // index into catalog::files; -1: the whole checkpoint
  friend bool operator==(const file_text&, const file_text&) = default;
};

/// Converts a defect of coverage into an error, in terms of chunks instead of ranks.
error to_error(const cover_problem& problem);

/// The contents of a checkpoint, whatever its format: tensors with the boxes and places of their chunks, objects,
/// files, and texts. It is built from descriptions (metadata, headers) alone and holds no elements.
/// `checkpoint_reader::contents` returns a checkpoint's catalog.
class catalog {
 public:
  checkpoint_format format = checkpoint_format::dcp;
  std::string version;             // DCP's version; empty when the file has none
  std::vector<std::string> files;  // relative to the checkpoint's folder; DCP: names or a `sibling_file`
  std::vector<std::string> transforms{""};
  std::vector<tensor_entry> tensors;
  std::vector<object_entry> objects;
  std::vector<stored_range> chunk_places;
  std::vector<file_text> texts;  // in the order of files
  std::string stem;              // hf: the prefix of its file names, "model" of model-00001-of-00002.safetensors

  /// Returns the tensor or the object with this key; null when there is none. After the first call, no entry may be
  /// added or renamed.
  /// Cost: O(1); O(entries) for the first call.
  const tensor_entry* find(std::string_view key) const;
  const object_entry* find_object(std::string_view key) const;

  /// Reserves space, as a vector does, for this many tensors and chunks; assumes that the chunks are matrices.
  void reserve(std::size_t tensor_count, std::size_t chunks);
  /// Appends a chunk to the last tensor. Precondition: the box has the tensor's rank.
  void add_chunk(const box& where, const stored_range& place);
  /// Returns the box of a chunk of `tensor`. `chunk` is numbered over all tensors.
  box chunk_box(const tensor_entry& tensor, std::int32_t chunk) const;
  void set_place(std::int32_t chunk, const stored_range& place) {
    chunk_places[static_cast<std::size_t>(chunk)] = place;
  }
  /// Returns the tensor's chunks as a distribution over items. A fragment's owner is its file (one past the last file
  /// for chunks without a place), and its slot is the chunk's number.
  result<distribution> distribution_of(const tensor_entry& tensor) const;
  /// Returns the size of all whole tensors together in bytes; saturates.
  std::int64_t tensor_bytes() const;

 private:
  std::vector<std::int64_t> chunk_bounds_;  // per chunk: offsets, then sizes
  std::vector<std::int64_t> first_bound_;   // per chunk: index into chunk_bounds_
  key_index tensor_of_key_, object_of_key_;
};

/// Checks that no two entries share a key.
/// \errors errc::duplicate_key with `message` and the key
/// Cost: O(entries).
result<void> check_distinct_keys(const catalog& entries, std::string_view message);

}  // namespace shardmesh
