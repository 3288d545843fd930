// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :searched_files;

namespace shardmesh {
namespace fs = places;

namespace {

// Links are not followed. Folders that cannot be listed are left out.
void add_files_below(const fs::path& folder, std::vector<fs::path>& files) {
  std::vector<fs::path> folders;
  std::error_code code, ignored;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (at->is_symlink(ignored)) continue;
    if (at->is_directory(ignored))
      folders.push_back(at->path());
    else if (at->is_regular_file(ignored))
      files.push_back(at->path());
  }
  for (const fs::path& below : folders) add_files_below(below, files);
}

}  // namespace

std::vector<fs::path> files_beside(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->is_regular_file(code) && !at->path().filename().string().ends_with(".distcp")) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> files_below(const fs::path& folder, const catalog& contents) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const std::string& file : contents.files)
    if (fs::is_regular_file(folder / file, ignored)) files.push_back(folder / file);
  add_files_below(folder, files);
  std::erase_if(files, [](const fs::path& file) { return file.extension() == ".distcp"; });
  files |= ranges::actions::sort | ranges::actions::unique;
  return files;
}

}  // namespace shardmesh
