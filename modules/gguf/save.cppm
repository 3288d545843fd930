// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files of version 3: plain tensors, tensors quantized to blocks, and blocks copied from another file.
export module shardmesh.gguf:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :reader;
import :tensor_type;

export namespace shardmesh::gguf {

struct file_options {
  /// A catalog whose texts go into the file. The text "gguf.value_types" states types of metadata values; every other
  /// text becomes a metadata value, except the format "pt".
  const catalog* carried = nullptr;
  /// One per tensor, or empty. The type of a tensor in the file. Without one, its `blocks` or its dtype decide.
  std::vector<std::optional<tensor_type>> types{};
  /// One per tensor, or empty. Blocks that are copied unchanged if the tensor keeps their type and shape.
  std::vector<std::optional<stored_blocks>> blocks{};
};

/// Returns the reason why GGUF cannot hold a tensor of plain elements: its name is not UTF-8, it has more than four
/// dimensions, or GGUF lacks its dtype. Returns nothing when it can.
std::optional<error> problem_of(std::string_view key, dtype type, const extents& shape);

/// Writes whole tensors (their chunks are ignored) and the objects. Objects that a metadata value can hold become
/// metadata values; the others are together in one value, "shardmesh.objects". Streams from `source`. Floating tensors
/// of a block type are quantized as ggml's reference does. The object "general.alignment" sets the alignment; it is 32
/// otherwise.
/// \errors before a file exists, one problem for each entry that the format cannot hold: those of `problem_of`;
///         errc::unsupported for a type that is not written, a tensor of another kind of elements, rows that are not
///         whole blocks, or a tensor of an unknown representation; errc::duplicate_key; errc::invalid_argument for an
///         invalid alignment; those of safetensors' `problems_of_names`. Later: errc::unsupported for a block with a
///         value that is not finite; those of source, staged output, and executor
result<save_report> save(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                         std::span<const output_object> objects, element_source source, const file_options& format = {},
                         const save_options& options = {});

}  // namespace shardmesh::gguf
