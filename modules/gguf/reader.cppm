// SPDX-License-Identifier: Apache-2.0
// Opens GGUF files as checkpoints. A file's description is read in header, its metadata values in metadata_value.
export module shardmesh.gguf:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :tensor_type;

export namespace shardmesh::gguf {

/// The key of a checkpoint's text that lists the metadata values whose types a writer would not choose, as JSON:
/// {"tokenizer.ggml.eos_token_id":"uint64"}. With it, a conversion through another format keeps the types.
inline constexpr std::string_view value_types_key = "gguf.value_types";
/// The key of the metadata value that holds all objects that no other metadata value can hold, as one document
/// (safetensors' `format_objects`).
inline constexpr std::string_view objects_key = "shardmesh.objects";
/// The prefix of the keys of metadata values that were texts of another format's file.
inline constexpr std::string_view text_prefix = "shardmesh.text.";

/// Opens one GGUF file. Tensors have row-major shapes. Tensors of plain types are read as they are. Blocks of quantized
/// numbers are float32, decoded while they are read; the transform of their place is the type's name. Types that cannot
/// be decoded are opaque tensors. Each metadata value is an object.
/// \errors those of `parse_header`. A tensor of an unknown type is one of the reader's problems. One file of a model in
///   several files is a warning.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// The quantized blocks of a tensor, as a file holds them.
struct stored_blocks {
  std::shared_ptr<const byte_source> file;
  std::int64_t begin = 0, length = 0;  // bytes of `file`
  tensor_type type = tensor_type::f32;
  extents shape;
};

/// Returns the blocks of a tensor of a GGUF file, or of a reader that shows it whole. Returns nothing for other
/// tensors. `tensor` is an index into the reader's catalog.
std::optional<stored_blocks> blocks_of(const checkpoint_reader& reader, std::size_t tensor);

}  // namespace shardmesh::gguf
