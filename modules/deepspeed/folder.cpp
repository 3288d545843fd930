// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>
module shardmesh.deepspeed;

import :parameter_files;
import :rank_files;

namespace shardmesh::deepspeed {
namespace fs = places;
namespace {

constexpr std::int64_t longest_latest = 4096;  // bytes: it holds a folder's name
constexpr std::size_t longest_name = 255;      // bytes of a folder's name

bool is_step(const fs::path& folder) {
  if (is_universal(folder)) return true;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (is_rank_file(at->path().filename().string())) return true;
  return false;
}

// Returns the file that names the last step: `latest`, or else that of universal checkpoints; empty when both are
// missing.
fs::path latest_file(const fs::path& folder) {
  std::error_code ignored;
  for (const std::string_view name : {"latest", "latest_universal"})
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  return {};
}

// Returns the name in the file, stripped as DeepSpeed does; empty without a file.
result<std::string> latest_tag(const fs::path& file) {
  if (file.empty()) return std::string();
  // Errors may print its text, so a link to a file outside the folder is refused.
  SHARDMESH_TRY(check_inside(file.parent_path(), file.filename().string()));
  SHARDMESH_TRY(const auto bytes, read_file(file, longest_latest));
  std::string tag(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!tag.empty() && is_space(tag.back())) tag.pop_back();
  tag.erase(tag.begin(), std::find_if_not(tag.begin(), tag.end(), is_space));
  return tag;
}

// Returns true when a step is outside the folder. Links to steps inside it are allowed.
bool leads_out(const fs::path& step, const fs::path& folder) {
  std::error_code code;
  const fs::path end = fs::canonical(step, code), home = fs::canonical(folder, code);
  return code || std::mismatch(home.begin(), home.end(), end.begin(), end.end()).first != home.end();
}

// Searches only folders with these names, because a run's folder may hold anything else.
std::vector<std::string> steps_in(const fs::path& folder, const std::string& tag) {
  std::vector<std::string> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if ((name == tag || name.starts_with("global_step")) && at->is_directory(ignored) &&
        !(at->is_symlink(ignored) && leads_out(at->path(), folder)) && is_step(at->path()))
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name && name != "." && name != ".." &&
         name.find_first_of("/\\") == name.npos && escaped(name) == name;
}

}  // namespace

bool holds_checkpoint(const fs::path& folder) {
  if (is_step(folder)) return true;
  const fs::path latest = latest_file(folder);
  const auto tag = latest_tag(latest);
  const std::size_t steps = steps_in(folder, tag ? *tag : "").size();
  if (steps > 0) return steps == 1 || !latest.empty();
  // A link that leads out of the folder also counts here. Opening the step refuses and names it.
  std::error_code ignored;
  return tag && is_plain_name(*tag) && fs::is_symlink(folder / *tag, ignored) && is_step(folder / *tag);
}

result<fs::path> step_folder(const fs::path& folder) {
  if (is_step(folder)) return folder;
  const fs::path latest = latest_file(folder);
  SHARDMESH_TRY(const std::string tag, latest_tag(latest));
  const std::vector<std::string> steps = steps_in(folder, tag);
  if (latest.empty()) {
    if (steps.size() == 1) return folder / steps.front();
    return fail(errc::bad_format, steps.empty() ? "holds no step that DeepSpeed saved"
                                                : "holds several steps and no 'latest' that names one")
        .with_file(folder.string())
        .with_hint(steps.empty() ? "" : fmt::format("open one of them: {}", name_list(steps)));
  }
  if (!is_plain_name(tag))
    return fail(errc::unsafe_path, "it does not contain the name of a folder beside it")
        .with_file(latest.string())
        .with_values("", tag.size() > longest_name ? fmt::format("{} bytes", tag.size()) : tag);
  std::error_code ignored;
  if (fs::is_symlink(folder / tag, ignored) && leads_out(folder / tag, folder))
    return fail(errc::unsafe_path, "a symbolic link leads out of the folder").with_file((folder / tag).string());
  if (std::find(steps.begin(), steps.end(), tag) == steps.end())
    return fail(errc::bad_format, "it names a step that does not exist")
        .with_file(latest.string())
        .with_values(tag, steps.empty() ? "no step" : name_list(steps));
  return folder / tag;
}

}  // namespace shardmesh::deepspeed
