// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder: safetensors files that hold one model together, by index, by name, or with PyTorch's sharding
// info. Not here: one file's header (safetensors), reading tensors.
export module shardmesh.safetensors:hf;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :header;

export namespace shardmesh::safetensors {

inline constexpr std::string_view hf_index_name = "model.safetensors.index.json";
/// "adapter_model.safetensors.index.json" of the stem "adapter_model".
std::string hf_index_name_of(std::string_view stem);
/// What the names of a model's files begin with: "adapter_model" of "adapter_model-00001-of-00002.safetensors" and of
/// "adapter_model.safetensors.index.json". "model" when that is empty or too long to name a file by.
std::string hf_stem_of(std::string_view file);

/// `model.safetensors.index.json`. `total_size` is informative: nothing may rely on it.
struct hf_index {
  std::optional<std::int64_t> total_size;                       // bytes
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor name, file name; in order
};

/// errc::bad_format, errc::duplicate_key, errc::unsafe_path (a file name with a "/" or "\\", "..", "." or empty), each
/// naming file and key. Cost: O(length).
result<hf_index> parse_hf_index(const byte_source& source);

/// The JSON text, as huggingface_hub writes it (two spaces of indent, sorted keys).
/// Precondition: names are UTF-8 (`safetensors::layout_file` has checked them).
std::string write_hf_index(std::int64_t total_size, std::span<const std::pair<std::string, std::string>> weight_map);

/// Which tensor goes to which file.
struct hf_shard_plan {
  std::vector<std::string> file_names;  // "STEM.safetensors" alone, or "STEM-00001-of-00003.safetensors" ..
  std::vector<std::size_t> file_of;     // per tensor
  std::int64_t total_size = 0;          // bytes of all tensors
  bool needs_index() const { return file_names.size() > 1; }
};

/// huggingface_hub's rule: tensors in the given order fill a file up to `max_shard_bytes`; a tensor that is larger than
/// that gets a file of its own. Without a limit (0) everything goes to one file. errc::overflow.
result<hf_shard_plan> plan_hf_shards(std::span<const std::int64_t> tensor_bytes, std::int64_t max_shard_bytes,
                                     std::string_view stem = "model");

/// A part of a tensor and the bytes of a file (row-major) that hold it.
struct hf_chunk {
  extents offsets, sizes;
  std::size_t file = 0;             // index into hf_folder::files
  std::int64_t begin = 0, end = 0;  // absolute
};

struct hf_tensor {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;                 // global
  std::vector<hf_chunk> chunks;  // in file order; coverage is not checked here
};

struct hf_file {
  std::string name;  // within the folder
  std::unique_ptr<byte_source> source;
  safetensors::header header;
};

struct hf_folder {
  std::vector<hf_tensor> tensors;  // by name
  std::vector<hf_file> files;      // by name
  std::optional<hf_index> index;
  std::string stem;  // of the index or the files; "model" for files of several stems
  /// Without an index: copies of the same model, which were not read. Variants ("model.fp16.safetensors") and parts
  /// ("model-00001-of-00002.safetensors") that have tensors of "model.safetensors", and "consolidated*.safetensors"
  /// beside any "model". Beside "model.safetensors": the index and its files, where it names any other.
  std::vector<std::string> set_aside;
};

/// Opens a folder, one .safetensors file, or the folder of an index file. With an index
/// (`model.safetensors.index.json` unless `model.safetensors` lies beside it, or the only *.safetensors.index.json) its
/// files are read, otherwise all *.safetensors of the folder in name order. Files with PyTorch's DCP_SHARDING_INFO hold
/// parts: their global shape is max(offset + size). The pool must outlive the folder.
/// \errors those of `safetensors::parse_header` and `parse_hf_index`; errc::missing_key (a tensor the index names is
///         not in its file, or a file's sharding info lacks a tensor), errc::duplicate_key (one tensor in two files),
///         errc::io (a file the index names does not exist), errc::dtype_mismatch and errc::shape_mismatch between
///         parts, errc::bad_format (no safetensors file at all, several indices, a tensor of a file that the index does
///         not name, an index that names nothing beside files that have tensors); naming key and files.
/// Cost: O(headers).
result<hf_folder> open_hf_folder(const std::filesystem::path& path, file_pool& pool);

}  // namespace shardmesh::safetensors
