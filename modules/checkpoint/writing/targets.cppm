// SPDX-License-Identifier: Apache-2.0
// targets: the formats that are written, one entry each: name, capabilities, writer. `save`, `convert`, the command
// line and the bindings consult this table alone, so that another format is its room and one entry here.
export module shardmesh.checkpoint:targets;

import shardmesh.std;
import shardmesh.catalog;
import shardmesh.transfer;
import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;

export namespace shardmesh {

/// The formats that `save` and `convert` write.
enum class target_format : std::uint8_t {
  dcp,                 // a folder, as of torch.distributed.checkpoint
  safetensors,         // one file
  hf,                  // a Hugging Face folder of safetensors files
  pt,                  // one file, as of torch.save: a nested dict
  torch_checkpointing  // a folder, as of the package torch_checkpointing: a file for each item and rank
};

/// The settings of all formats' writers. Each writer reads its own.
struct target_settings {
  dcp::extras metadata = dcp::new_extras();
  safetensors::file_options files{};  // safetensors and hf; the format decides `folder`
  torch_checkpointing::folder_options items{};
};

/// A format that is written.
struct target {
  target_format format;
  std::string_view name;       // as the command line and Python spell it: "torch-checkpointing"
  std::string_view extension;  // of a format that is one file: ".pt"; empty: a folder
  /// Entries are pickles: nested paths, objects that hold tensors, and wrapping tensors need not be taken apart.
  bool is_pickled;
  /// Entries are found by their nested paths alone. DCP is pickled, but has flat keys.
  bool is_nested;
  /// Files have a place for texts, as the `__metadata__` of safetensors.
  bool has_texts;
  /// Has entries of its own for `target_settings::items`.
  bool has_items;
  /// The formats whose side files (config.json, ...) are of use beside this one.
  std::span<const checkpoint_format> side_files_of;
  /// Writes all entries, whole or not at all.
  save_report (*write)(const std::filesystem::path& destination, std::vector<output_tensor> tensors,
                       std::span<const output_object> objects, element_source source, const target_settings& settings,
                       const save_options& options);
};

/// All of them, in the order of `target_format`.
std::span<const target> targets();
/// The entry of a format.
const target& target_of(target_format format);
/// The entry of a name; null: no format has it.
const target* find_target(std::string_view name);
/// The entry of the one file that `destination`'s extension names; null where that does not decide.
const target* target_by_extension(const std::filesystem::path& destination);
/// "dcp, safetensors, hf, pt or torch-checkpointing", for messages; each name behind `prefix`.
std::string target_names(std::string_view prefix = {});

/// The JSON file in which a format without pickles keeps what is no tensor; empty: the format keeps it with the
/// tensors.
std::filesystem::path objects_file(const target& format, const std::filesystem::path& destination);

}  // namespace shardmesh
