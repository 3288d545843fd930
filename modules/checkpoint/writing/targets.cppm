// SPDX-License-Identifier: Apache-2.0
// targets: the table of formats that can be written: name, capabilities, and writer. `save`, `convert`, the command
// line, and the bindings consult only this table. A new format needs a room and one entry here.
export module shardmesh.checkpoint:targets;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.transfer;
import shardmesh.dcp;
import shardmesh.gguf;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;

export namespace shardmesh {

/// The formats that `save` and `convert` write.
enum class target_format : std::uint8_t {
  dcp,                  // a folder of torch.distributed.checkpoint
  safetensors,          // one file
  hf,                   // a Hugging Face folder of safetensors files
  pt,                   // one file of torch.save: a nested dict
  torch_checkpointing,  // a folder of the package torch_checkpointing: a file for each item and rank
  gguf,                 // one GGUF file
  npz                   // one .npz archive of NumPy
};

/// The settings of all formats' writers. Each writer reads its own.
struct target_settings {
  dcp::extras metadata = dcp::new_extras();
  safetensors::file_options files{};  // safetensors and hf; the format decides `folder`
  torch_checkpointing::folder_options items{};
  gguf::file_options gguf_file{};
};

/// A format that can be written.
struct target {
  target_format format;
  std::string_view name;       // as the command line and Python spell it: "torch-checkpointing"
  std::string_view extension;  // of a single-file format: ".pt"; empty: a folder
  /// Entries are pickles: nested paths, objects that hold tensors, and wrapping tensors can stay whole.
  bool is_pickled;
  /// Entries are found only by their nested paths. DCP is pickled, but has flat keys.
  bool is_nested;
  /// Files have a place for texts, such as the `__metadata__` of safetensors.
  bool has_texts;
  /// Entries belong to items, and `target_settings::items` applies.
  bool has_items;
  /// Objects go to a JSON file beside the tensors.
  bool has_objects_file;
  /// Tensors can be quantized to blocks, and `target_settings::gguf_file` applies.
  bool has_block_types;
  /// Returns why the format cannot hold a tensor of plain elements.
  std::optional<error> (*problem_of)(std::string_view key, dtype type, const extents& shape);
  /// The source formats whose side files (config.json, ...) are useful beside this one.
  std::span<const checkpoint_format> side_files_of;
  /// Writes all entries, completely or not at all.
  result<save_report> (*write)(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                               std::span<const output_object> objects, element_source source,
                               const target_settings& settings, const save_options& options);
};

/// Returns all formats, in the order of `target_format`.
std::span<const target> targets();
/// Returns the entry of a format.
const target& target_of(target_format format);
/// Returns the entry with this name; null if no format has it.
const target* find_target(std::string_view name);
/// Returns the entry of the single-file format that the extension of `destination` names; null if it names none.
const target* target_by_extension(const std::filesystem::path& destination);
/// Lists the names for messages, with `prefix` before each: "dcp, safetensors, hf, pt, torch-checkpointing, gguf, or
/// npz".
std::string target_names(std::string_view prefix = {});

/// Checks that a save in this format may refer to a previous checkpoint; an empty path means none.
/// \errors errc::invalid_argument for every format but DCP
result<void> check_previous(target_format format, const std::filesystem::path& previous);

/// Returns the JSON file in which a format without pickles keeps everything except tensors; empty if the format keeps
/// it with the tensors.
std::filesystem::path objects_file(const target& format, const std::filesystem::path& destination);

}  // namespace shardmesh
