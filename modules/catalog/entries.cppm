// SPDX-License-Identifier: Apache-2.0
// catalog: what a checkpoint says that it holds, whatever its format: tensors, their chunks, objects, files.
// A flat description: 2,000,000 chunks take 48 bytes each, plus 16 per dimension. Not here: reading (reader).
export module shardmesh.catalog:entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;

namespace shardmesh {

// Keys to positions, made when it is first asked; several threads may ask at once. A copy starts without.
class key_index {
 public:
  key_index() = default;
  key_index(const key_index&) {}
  key_index& operator=(const key_index&) { return made_ = std::make_unique<state>(), *this; }
  ~key_index() = default;

  // The position of the first of `entries` with this key. The entries are the same at every call.
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

/// The format of a checkpoint that was opened. What is written has a `target_format`.
enum class checkpoint_format : std::uint8_t {
  dcp,          // a folder of torch.distributed.checkpoint
  torch_file,   // a file of torch.save
  safetensors,  // one safetensors file
  hf,           // a Hugging Face folder of safetensors files
  torch_files,  // several files of torch.save that are one checkpoint: a model in parts, a file for each rank
  deepspeed,    // a DeepSpeed folder: ZeRO 0 to 3
  torchsnapshot,
  torch_checkpointing,  // DCP's successor
  parts                 // a folder of several checkpoints, seen as one
};
/// "dcp", "torch", "safetensors", "hf", "torch-files", "deepspeed", "torchsnapshot", "torch-checkpointing", "parts"
std::string_view name(checkpoint_format format);

/// The rank that wrote a file, where its name says so: 3 of DCP's "__3_0.distcp".
std::optional<std::int32_t> rank_of_file(std::string_view file);

/// Where a chunk's or object's bytes are: a range of one of the catalog's files. `file` -1: nothing says where.
struct stored_range {
  std::int32_t file = -1;
  std::int32_t transform = 0;  // index into catalog::transforms; 0: none
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// PyTorch's TensorProperties beside the dtype, as they are written in DCP metadata.
struct stored_properties {
  std::string layout = "torch.strided";
  bool requires_grad = false;
  bool pin_memory = false;
  std::int32_t memory_format = 0;  // _MEM_FORMAT_ENCODING: 0 contiguous, 1 channels last, 2 preserve
  std::string foreign_dtype;       // PyTorch's name of a dtype that we do not have ("qint8"), else empty
  std::optional<extents> strides;  // since PyTorch 2.15: of the part that rank 0 had in memory; older ones do not say
  friend bool operator==(const stored_properties&, const stored_properties&) = default;
};

/// A tensor: its chunks are entries [first_chunk, first_chunk + chunk_count) of the catalog's chunk arrays.
struct tensor_entry {
  std::string key;  // fqn as the format spells it: the flattened, dotted one in DCP
  path where;       // the nested path where the format knows it (DCP's planner_data, .pt files), else {key}; not empty
  dtype type = dtype::undefined;
  extents shape;
  std::int32_t first_chunk = 0;
  std::int32_t chunk_count = 0;
  stored_properties properties;
  std::string opaque_type;  // not empty: a representation that we do not know (opaque-tensor), its Python type
  std::string opaque_kind;  // what it is then, for people: "sparse COO tensor"
};

/// A thing that is not a tensor. Its bytes are `place` (DCP), or it lies inside the one pickle of a .pt file.
struct object_entry {
  std::string key;
  path where;  // as of a tensor
  stored_range place;
  /// Of a .pt file: tensors inside that no entry names, so that nothing can carry them.
  std::int64_t hidden_tensors = 0;
};

/// A text that whoever wrote a file attached to it: an entry of safetensors' `__metadata__`. What describes the file
/// itself (our checksums, PyTorch's sharding info) is not among them.
struct file_text {
  std::string key, value;
  std::int32_t file = -1;  // index into catalog::files; -1: of the whole checkpoint
  friend bool operator==(const file_text&, const file_text&) = default;
};

/// A defect of coverage, in a checkpoint's words (chunks instead of ranks).
error to_error(const cover_problem& problem);

/// What a checkpoint holds, whatever its format: its tensors with the boxes and places of their chunks, its objects,
/// its files and texts. Made of descriptions (metadata, headers) alone; it has no elements.
/// `checkpoint_reader::contents` gives a checkpoint's.
class catalog {
 public:
  checkpoint_format format = checkpoint_format::dcp;
  std::string version;             // DCP's; empty when the file has none
  std::vector<std::string> files;  // relative to the checkpoint's folder
  std::vector<std::string> transforms{""};
  std::vector<tensor_entry> tensors;
  std::vector<object_entry> objects;
  std::vector<stored_range> chunk_places;
  std::vector<file_text> texts;  // by file
  std::string stem;              // hf: what its files' names begin with, "model" of model-00001-of-00002.safetensors

  /// The tensor, or the object, of this key; null when there is none. Once they were asked, no entry is added or
  /// renamed. Cost: O(1); the first call O(entries).
  const tensor_entry* find(std::string_view key) const;
  const object_entry* find_object(std::string_view key) const;

  /// Makes room, as a vector does, for so many; of chunks as those of matrices.
  void reserve(std::size_t tensor_count, std::size_t chunks);
  /// Appends a chunk to the last tensor. Precondition: the box has the tensor's rank.
  void add_chunk(const box& where, const stored_range& place);
  /// The box of a chunk (its number over all tensors) of `tensor`.
  box chunk_box(const tensor_entry& tensor, std::int32_t chunk) const;
  void set_place(std::int32_t chunk, const stored_range& place) {
    chunk_places[static_cast<std::size_t>(chunk)] = place;
  }
  /// The tensor's chunks as a distribution over items: a fragment's owner is the file (chunks without a place: one past
  /// the last file), its slot the chunk's number.
  result<distribution> distribution_of(const tensor_entry& tensor) const;
  /// Number of bytes of all tensors, whole; saturates.
  std::int64_t tensor_bytes() const;

 private:
  std::vector<std::int64_t> chunk_bounds_;  // per chunk: offsets, then sizes
  std::vector<std::int64_t> first_bound_;   // per chunk: index into chunk_bounds_
  key_index tensor_of_key_, object_of_key_;
};

/// No two entries have one key. errc::duplicate_key with `message` and the key. Cost: O(entries).
result<void> check_distinct_keys(const catalog& entries, std::string_view message);

}  // namespace shardmesh
