// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

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

import :rank_files;

namespace shardmesh::deepspeed {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t longest_latest = 4096;  // bytes: it holds the name of a folder
constexpr std::size_t most_looked_at = 5000;   // names

bool is_step(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (is_rank_file(at->path().filename().string())) return true;
  return false;
}

bool has_latest(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "latest", ignored);
}

// The name in `latest`, as DeepSpeed strips it; nothing without one.
result<std::string> latest_tag(const fs::path& folder) {
  if (!has_latest(folder)) return std::string();
  SHARDMESH_TRY(const auto bytes, read_file(folder / "latest", longest_latest));
  std::string tag(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!tag.empty() && is_space(tag.back())) tag.pop_back();
  tag.erase(tag.begin(), std::find_if_not(tag.begin(), tag.end(), is_space));
  return tag;
}

// Looked into are folders of these names only: a run's folder may hold anything else.
std::vector<std::string> steps_in(const fs::path& folder, const std::string& tag) {
  std::vector<std::string> found;
  std::error_code code;
  std::size_t looked_at = 0;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (++looked_at > most_looked_at) break;
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    if ((name == tag || name.starts_with("global_step")) && at->is_directory(ignored) && !at->is_symlink(ignored) &&
        is_step(at->path()))
      found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == name.npos &&
         std::none_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

}  // namespace

bool holds_checkpoint(const fs::path& folder) {
  if (is_step(folder)) return true;
  const auto tag = latest_tag(folder);
  const std::size_t steps = steps_in(folder, tag ? *tag : "").size();
  return steps == 1 || (steps > 1 && has_latest(folder));
}

result<fs::path> step_folder(const fs::path& folder) {
  if (is_step(folder)) return folder;
  SHARDMESH_TRY(const std::string tag, latest_tag(folder));
  const std::vector<std::string> steps = steps_in(folder, tag);
  if (!has_latest(folder)) {
    if (steps.size() == 1) return folder / steps.front();
    return fail(errc::bad_format, steps.empty() ? "holds no step that DeepSpeed saved"
                                                : "holds several steps and no 'latest' that names one")
        .with_file(folder.string())
        .with_hint(steps.empty() ? "" : fmt::format("open one of them: {}", name_list(steps)));
  }
  const fs::path latest = folder / "latest";
  if (!is_plain_name(tag))
    return fail(errc::unsafe_path, "it does not hold the name of a folder beside it")
        .with_file(latest.string())
        .with_values("", tag);
  if (std::find(steps.begin(), steps.end(), tag) == steps.end())
    return fail(errc::bad_format, "it names a step that is not there")
        .with_file(latest.string())
        .with_values(tag, steps.empty() ? "no step" : name_list(steps));
  return folder / tag;
}

}  // namespace shardmesh::deepspeed
