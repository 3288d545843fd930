// SPDX-License-Identifier: Apache-2.0
module;
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :damaged_archives;
import :global_collector;
import :pickle_globals;
import :pickle_scan;
import :searched_files;

namespace shardmesh {
namespace fs = places;
namespace {

// Calls `visit` if the file is an archive. The reader reports files that cannot be opened.
void with_archive(const fs::path& path, function_ref<void(const byte_source&)> visit) {
  file_pool pool(1);
  const auto source = pool.open(path);
  if (!source || !looks_like_zip(**source)) return;
  if (const auto windows = windowed_source::open(**source)) visit(*windows);
}

// Searches the archives inside a file, if it is an archive.
void scan_inside(const fs::path& path, const std::string& name, global_collector& into) {
  if (scan_nemo(path, name, into)) return;
  with_archive(path, [&](const byte_source& source) { scan_inner_archives(source, name, into); });
}

// Files of items (such as .distcp), safetensors files, and GGUF files are not archives, so they are not opened.
bool may_hold_archives(checkpoint_format format, std::string_view file) {
  return format != checkpoint_format::dcp && format != checkpoint_format::torchsnapshot &&
         format != checkpoint_format::torch_checkpointing && !file.ends_with(".safetensors") &&
         !file.ends_with(".gguf") && !file.ends_with(".distcp");
}

void scan_beside(const fs::path& folder, const std::vector<std::string>& own, global_collector& into) {
  const std::string no_key;
  const std::set<std::string_view> opened(own.begin(), own.end());
  for (const fs::path& file : files_beside(folder)) {
    const std::string name = file.filename().string();
    if (opened.contains(name) || scan_nemo(file, name, into)) continue;
    with_archive(file, [&](const byte_source& source) {
      auto done = scan_archive(source, {.file = name, .key = no_key}, into);
      if (!done && is_checkpoint_name(name)) into.problem(std::move(done).error(), no_key);
    });
  }
}

}  // namespace

std::vector<error> damaged_archives(const checkpoint_reader& reader, const read_limits& limits) {
  std::error_code code;
  const places::remembered_answers answers;
  const fs::path& path = reader.path();
  const fs::path folder = path.filename() == ".metadata" ? path.parent_path() : path;
  const bool is_folder = fs::is_directory(folder, code);
  const catalog& contents = reader.contents();
  const global_options options{.threads = 1, .limits = limits};
  global_collector found(options);
  if (!is_folder) {
    scan_inside(path, fs::name_of(path).string(), found);
  } else {
    scan_beside(folder, contents.files, found);
    for (const std::string& file : contents.files)
      if (may_hold_archives(contents.format, file)) scan_inside(folder / file, file, found);
  }
  global_report report = found.take();
  // A name in angle brackets stands for a part that could not be read.
  std::erase_if(report.names, [](const named_global& name) { return !name.dangerous || !name.name.starts_with('<'); });
  for (error& problem : dangers_of(report, path)) report.problems.push_back(std::move(problem));
  if (report.more_problems > 0 && !report.problems.empty()) report.problems.back().more += report.more_problems;
  return std::move(report.problems);
}

}  // namespace shardmesh
