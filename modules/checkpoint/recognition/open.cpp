// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.deepspeed;
import shardmesh.gguf;
import shardmesh.nemo;
import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;
import shardmesh.torchsnapshot;
import :folder_survey;
import :folders;
import :megatron_folder;
import :model_files;
import :folder_parts;
import :rank_files;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// Opens a model's files, or the ranks' files of one save.
result<std::unique_ptr<checkpoint_reader>> open_torch_files(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(const std::vector<checkpoint_part> parts, list_parts(folder));
  std::vector<checkpoint_part> found;
  for (const checkpoint_part& part : parts) {
    if (part.own == checkpoint_format::torch_files || part.ranks) found.push_back(part);
  }
  if (found.size() == 1) return open_part(found.front(), options);
  if (!found.empty())
    return fail(errc::bad_format, fmt::format("holds the files of several saves: {}", names_of(found)))
        .with_file(folder.string())
        .with_hint(fmt::format("open one by its name: {}", (folder / found.front().name).string()));
  return open_model_files(folder, options);
}

// Opens a folder that is a checkpoint; null when it is not one.
result<std::unique_ptr<checkpoint_reader>> open_folder(const fs::path& path, const open_options& options) {
  SHARDMESH_TRY(const auto format, format_of_folder(path));
  if (!format) return std::unique_ptr<checkpoint_reader>();
  switch (*format) {
    case checkpoint_format::dcp:
      return dcp::open(path, options);
    case checkpoint_format::torch_files:
      return open_torch_files(path, options);
    case checkpoint_format::torch_checkpointing:
      return torch_checkpointing::open(path, options);
    case checkpoint_format::torchsnapshot:
      return torchsnapshot::open(path, options);
    case checkpoint_format::deepspeed:
      return deepspeed::open(path, options);
    case checkpoint_format::npz:
      return npz::open_folder(path, options);
    default:
      return safetensors::open_folder(path, options);
  }
}

result<std::unique_ptr<checkpoint_reader>> open_any(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    SHARDMESH_TRY(auto part, open_named_part(path, options));
    if (part) return part;
    return code && code != std::errc::no_such_file_or_directory
               ? fail_sys(code.value(), "cannot open", path.string())
               : fail(errc::io, "does not exist").with_file(path.string());
  }
  if (!fs::is_directory(status)) {
    if (path.filename().string().ends_with(".safetensors")) return safetensors::open(path, options);
    if (path.filename() == torch_checkpointing::metadata_file_name)
      return torch_checkpointing::open(path.parent_path(), options);
    if (nemo::is_nemo_name(path.filename().string())) return nemo::open(path, options);
    if (path.filename() == ".metadata") return dcp::open(path.parent_path(), options);
    if (safetensors::is_torch_model_index(path.filename().string())) return open_model_files(path, options);
    // Decides by content: a safetensors header begins with a length and "{"; everything that is neither it nor GGUF nor
    // NumPy's is for torch.load.
    SHARDMESH_TRY(const bool is_gguf, gguf::looks_like_gguf(path));
    if (is_gguf || path.filename().string().ends_with(".gguf")) return gguf::open(path, options);
    SHARDMESH_TRY(const bool is_npz, npz::looks_like_npz(path));
    if (is_npz || is_numpy_name(path.filename().string())) return npz::open(path, options);
    SHARDMESH_TRY(const bool is_safetensors, safetensors::looks_like_safetensors(path));
    return is_safetensors ? safetensors::open(path, options) : torch_file::open(path, options);
  }
  SHARDMESH_TRY(auto reader, open_folder(path, options));
  if (reader) return reader;
  SHARDMESH_TRY(const auto meant, megatron_checkpoint_in(path));
  if (meant && !fs::is_directory(*meant, code)) return torch_file::open(*meant, options);
  if (meant) {
    SHARDMESH_TRY(reader, open_folder(*meant, options));
    if (reader) return reader;
  }
  const std::string below = checkpoints_below(path);
  return fail(errc::bad_format, "is not a checkpoint")
      .with_file(path.string())
      .with_values(".metadata, *.distcp or *.safetensors in the folder", "none of them")
      .with_hint(below.empty() ? "" : "it holds these: " + below + "; open one by its name");
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const fs::path& path, const open_options& options) {
  open_options all = options;
  all.files = options.pool();  // one pool for all files of a checkpoint
  return open_any(path, all);
}

}  // namespace shardmesh
