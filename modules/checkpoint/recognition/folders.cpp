// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.deepspeed;
import shardmesh.torch_checkpointing;
import shardmesh.torchsnapshot;
import :consolidated_name;
import :folder_survey;
import :folders;
import :rank_file_name;

namespace shardmesh {
namespace fs = places;
namespace {

// The number of names that a search looks at. Under a URL, some of them cost a request.
std::size_t most_looked_at(const fs::path& top) {
  return is_url(top) ? 50 : 5000;
}

struct search {
  fs::path top;
  std::vector<std::string> found;
  std::size_t looked_at = 0;

  void look_in(const fs::path& folder, int levels) {
    std::error_code code;
    std::vector<fs::path> folders;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
      if (++looked_at > most_looked_at(top)) return;
      std::error_code ignored;
      if (at->is_directory(ignored) && !at->is_symlink(ignored))  // a link may lead back
        folders.push_back(at->path());
      else if (const auto format = at->is_regular_file(ignored) ? format_of_file(at->path()) : std::nullopt)
        found.push_back(fmt::format("{} ({})", at->path().lexically_relative(top).string(), shardmesh::name(*format)));
    }
    std::sort(folders.begin(), folders.end());
    for (const fs::path& below : folders) {
      const auto format = format_of_folder(below);
      if (format && *format)
        found.push_back(fmt::format("{} ({})", below.lexically_relative(top).string(), name(**format)));
      else if (levels > 1)
        look_in(below, levels - 1);
    }
  }
};

}  // namespace

result<std::optional<checkpoint_format>> format_of_folder(const fs::path& folder) {
  bool has_safetensors = false, has_dcp = false, has_model_files = false, has_rank_files = false, has_npz = false;
  bool has_consolidated = false;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string file = at->path().filename().string();
    has_dcp |= file.ends_with(".metadata") || file.starts_with(".metadata") || file.ends_with(".distcp");
    has_safetensors |= file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json");
    has_model_files |= safetensors::parse_torch_model_name(file) || safetensors::is_torch_model_index(file);
    has_rank_files |= parse_rank_file_name(file).has_value();
    has_npz |= npz::is_weights_name(file);
    has_consolidated |= parse_consolidated_name(file).has_value();
  }
  if (code) return fs::failure(code, "cannot list", folder);
  // Tested before hf, because such a folder may hold safetensors files. Not tested beside DCP files, because a DCP
  // folder may hold any other file.
  if (!has_dcp && torch_checkpointing::is_folder(folder)) return std::optional(checkpoint_format::torch_checkpointing);
  if (has_dcp) return std::optional(checkpoint_format::dcp);
  if (torchsnapshot::is_snapshot(folder)) return std::optional(checkpoint_format::torchsnapshot);
  if (has_safetensors) return std::optional(checkpoint_format::hf);
  if (has_model_files) return std::optional(checkpoint_format::torch_files);
  if (has_npz) return std::optional(checkpoint_format::npz);
  if (deepspeed::holds_checkpoint(folder)) return std::optional(checkpoint_format::deepspeed);
  // Tested after deepspeed, whose files also look like ranks' files.
  return has_rank_files || has_consolidated ? std::optional(checkpoint_format::torch_files) : std::nullopt;
}

std::string checkpoints_below(const fs::path& folder) {
  search work{folder, {}, 0};
  work.look_in(folder, 2);
  std::sort(work.found.begin(), work.found.end());
  if (work.found.empty()) return {};
  const bool is_cut = work.looked_at > most_looked_at(folder);
  return name_list(work.found) + (is_cut ? fmt::format(" (of the first {} names)", most_looked_at(folder)) : "");
}

}  // namespace shardmesh
