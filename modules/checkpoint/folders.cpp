// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>
module shardmesh.checkpoint;

import :folders;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_looked_at = 5000;  // names

bool is_torch_file(std::string_view name) {
  return name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".ckpt") || name.ends_with(".bin");
}

struct search {
  fs::path top;
  std::vector<std::string> found;
  std::size_t looked_at = 0;

  void look_in(const fs::path& folder, int levels) {
    std::error_code code;
    std::vector<fs::path> folders;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
      if (++looked_at > most_looked_at) return;
      const std::string name = at->path().filename().string();
      std::error_code ignored;
      if (at->is_symlink(ignored)) continue;
      if (at->is_directory(ignored))
        folders.push_back(at->path());
      else if (is_torch_file(name) && at->is_regular_file(ignored))
        found.push_back(at->path().lexically_relative(top).string() + " (torch)");
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
  bool has_safetensors = false, has_dcp = false;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string file = at->path().filename().string();
    has_dcp |= file.ends_with(".metadata") || file.starts_with(".metadata") || file.ends_with(".distcp");
    has_safetensors |= file.ends_with(".safetensors") || file.ends_with(".safetensors.index.json");
  }
  if (code) return fail_sys(code.value(), "cannot list", folder.string());
  if (has_dcp) return std::optional(checkpoint_format::dcp);
  return has_safetensors ? std::optional(checkpoint_format::hf) : std::nullopt;
}

std::string checkpoints_below(const fs::path& folder) {
  search work{folder, {}, 0};
  work.look_in(folder, 2);
  std::sort(work.found.begin(), work.found.end());
  return name_list(work.found);
}

}  // namespace shardmesh
