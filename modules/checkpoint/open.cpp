// SPDX-License-Identifier: Apache-2.0
module;
#include <try.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.torch_file;
import :folders;

namespace shardmesh {
namespace fs = std::filesystem;

result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status))
    return code && code != std::errc::no_such_file_or_directory
               ? fail_sys(code.value(), "cannot open", path.string())
               : fail(errc::io, "does not exist").with_file(path.string());
  if (!fs::is_directory(status)) {
    if (path.filename().string().ends_with(".safetensors")) return safetensors::open(path, options);
    if (path.filename() == ".metadata") return dcp::open(path.parent_path(), options);
    // By content: a safetensors header begins with a length and "{"; everything else is for torch.load.
    SHARDMESH_TRY(const bool is_safetensors, safetensors::looks_like_safetensors(path));
    return is_safetensors ? safetensors::open(path, options) : torch_file::open(path, options);
  }
  SHARDMESH_TRY(const auto format, format_of_folder(path));
  if (format)
    return *format == checkpoint_format::dcp ? dcp::open(path, options) : safetensors::open_folder(path, options);
  const std::string below = checkpoints_below(path);
  return fail(errc::bad_format, "is not a checkpoint")
      .with_file(path.string())
      .with_values(".metadata, *.distcp or *.safetensors in the folder", "none of them")
      .with_hint(below.empty() ? "" : "it holds these: " + below);
}

}  // namespace shardmesh
