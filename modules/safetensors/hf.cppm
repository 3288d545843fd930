// SPDX-License-Identifier: Apache-2.0
// Opens a Hugging Face folder: safetensors files that together hold one model, by index, by name, or with PyTorch's
// sharding info. One file's header is parsed in header; tensors are read in reader.
export module shardmesh.safetensors:hf;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :header;

export namespace shardmesh::safetensors {

inline constexpr std::string_view hf_index_name = "model.safetensors.index.json";
/// Returns the index name for a stem: "adapter_model.safetensors.index.json" for "adapter_model".
std::string hf_index_name_of(std::string_view stem);
/// Returns the common stem of a model's file names: "adapter_model" for "adapter_model-00001-of-00002.safetensors" and
/// for "adapter_model.safetensors.index.json". Returns "model" when the stem is empty or too long for a file name.
std::string hf_stem_of(std::string_view file);

/// The content of `model.safetensors.index.json`. `total_size` is informative; do not rely on it.
struct hf_index {
  std::optional<std::int64_t> total_size;                       // bytes
  std::vector<std::pair<std::string, std::string>> weight_map;  // (tensor name, file name), in order
  std::vector<std::string> unread;  // other members: "NAME", or "metadata.NAME"; not those that state sizes
};

/// Parses an index. errc::bad_format, errc::duplicate_key, errc::unsafe_path (a file name that is empty, ".", or "..",
/// or that contains "/" or "\\"), each naming file and key. Cost: O(length).
result<hf_index> parse_hf_index(const byte_source& source);

/// Formats the JSON text as huggingface_hub writes it (two spaces of indent, sorted keys).
/// Precondition: names are UTF-8 (`safetensors::layout_file` has checked them).
std::string write_hf_index(std::int64_t total_size, std::span<const std::pair<std::string, std::string>> weight_map);

/// The assignment of tensors to files.
struct hf_shard_plan {
  std::vector<std::string> file_names;  // "STEM.safetensors" alone, or "STEM-00001-of-00003.safetensors" ..
  std::vector<std::size_t> file_of;     // per tensor
  std::int64_t total_size = 0;          // bytes of all tensors
  bool needs_index() const { return file_names.size() > 1; }
};

/// Applies huggingface_hub's rule: tensors in the given order fill a file up to `max_shard_bytes`; a larger tensor gets
/// a file of its own. Without a limit (0) everything goes to one file. errc::overflow.
result<hf_shard_plan> plan_hf_shards(std::span<const std::int64_t> tensor_bytes, std::int64_t max_shard_bytes,
                                     std::string_view stem = "model");

/// A part of a tensor and the row-major bytes of a file that hold it.
struct hf_chunk {
  extents offsets, sizes;
  std::size_t file = 0;             // index into hf_folder::files
  std::int64_t begin = 0, end = 0;  // absolute
};

struct hf_tensor {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;                 // global
  std::vector<hf_chunk> chunks;  // in file order; their coverage is not checked here
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
  std::string stem;  // of the index or the files; "model" when the files have several stems
  /// Files that were not read, because they hold copies of the same model. Without an index: variants
  /// ("model.fp16.safetensors") and parts ("model-00001-of-00002.safetensors") that share tensors with
  /// "model.safetensors"; and "consolidated*.safetensors" beside any "model". With an index that names other files than
  /// the "model.safetensors" beside it: the index and those files.
  std::vector<std::string> set_aside;
};

/// Opens a folder, one .safetensors file, or the folder of an index file. The index is `model.safetensors.index.json`
/// (unless `model.safetensors` is beside it), or else the only *.safetensors.index.json. With an index, its files are
/// read; otherwise all *.safetensors of the folder, in name order. Files with PyTorch's DCP_SHARDING_INFO hold parts:
/// their global shape is max(offset + size). The pool must outlive the folder.
/// \errors those of `safetensors::parse_header` and `parse_hf_index`; errc::missing_key (a tensor of the index is not
///         in its file, or a file's sharding info lacks a tensor), errc::duplicate_key (one tensor in two files),
///         errc::io (a file that the index names does not exist), errc::dtype_mismatch and errc::shape_mismatch between
///         parts, errc::bad_format (no safetensors file, several indices, a tensor that the index does not name, an
///         empty index beside files with tensors); each names the key and the files.
/// Cost: O(headers).
result<hf_folder> open_hf_folder(const std::filesystem::path& path, file_pool& pool);

}  // namespace shardmesh::safetensors
