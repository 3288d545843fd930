// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.checkpoint_core;
import shardmesh.storage;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// The least sizes of the files of a checkpoint, by number of the file; -1: the file has no item.
std::vector<std::int64_t> needed_sizes(const catalog& contents) {
  std::vector<std::int64_t> needed(contents.files.size(), -1);
  const auto add = [&](const stored_range& place) {
    if (place.file < 0 || static_cast<std::size_t>(place.file) >= needed.size()) return;
    std::int64_t& size = needed[static_cast<std::size_t>(place.file)];
    const auto end = checked_add(place.offset, place.length);
    size = std::max(size, end ? *end : std::numeric_limits<std::int64_t>::max());
  };
  for (const stored_range& place : contents.chunk_places) add(place);
  for (const object_entry& object : contents.objects) add(object.place);
  return needed;
}

result<void> check_file(const fs::path& step, const std::string& file, std::int64_t needed) {
  fs::path path = step / file;
  if (const auto sibling = parse_sibling_file(file)) {
    SHARDMESH_TRY(check_sibling(step, *sibling));
    std::error_code code;
    const fs::path real = fs::canonical(step, code);  // the step may be a link to a folder elsewhere
    if (code) return fail_sys(code.value(), "cannot resolve", step.string());
    path = real.parent_path() / sibling->folder / sibling->file;
  }
  struct ::stat status{};
  if (::stat(path.c_str(), &status) != 0)
    return fail_sys(errno, "a file of the step cannot be examined", path.string());
  if (!S_ISREG(status.st_mode)) return fail(errc::bad_format, "is not a regular file").with_file(path.string());
  if (status.st_size >= needed) return {};
  return fail(errc::bad_format, "is shorter than the description says")
      .with_file(path.string())
      .with_values(fmt::format("at least {} bytes", needed), fmt::format("{} bytes", status.st_size));
}

std::vector<std::string> folders_of(const catalog& contents) {
  std::set<std::string> folders;
  for (const std::string& file : contents.files)
    if (auto sibling = parse_sibling_file(file)) folders.insert(std::move(sibling->folder));
  return {folders.begin(), folders.end()};
}

result<void> check_sizes(const fs::path& step, const catalog& contents) {
  // Readers of these formats refuse a file that a link leads out of the folder.
  const bool refuses_links =
      contents.format == checkpoint_format::dcp || contents.format == checkpoint_format::torchsnapshot;
  const std::vector<std::int64_t> needed = needed_sizes(contents);
  std::vector<error> problems;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] < 0) continue;
    auto checked = check_file(step, contents.files[i], needed[i]);
    if (checked && refuses_links && !parse_sibling_file(contents.files[i]))
      checked = check_inside(step, contents.files[i]);
    if (!checked) problems.push_back(std::move(checked).error());
  }
  if (!problems.empty()) return fail_all(std::move(problems));
  return {};
}

}  // namespace

step_check check_step(const fs::path& step, const step_check_options& options) {
  step_check made;
  const auto reader = open_checkpoint(step, {.within = options.within, .cancel = options.cancel});
  if (!reader) {
    made.problem = reader.error();
    return made;
  }
  const catalog& contents = (*reader)->contents();
  made.references = folders_of(contents);
  // A description that is readable in part could lack a reference.
  made.are_references_known = (*reader)->problems().empty();
  if (!made.are_references_known) {
    made.problem = fail_all((*reader)->problems());
    return made;
  }
  if (const auto checked = check_sizes(step, contents); !checked) {
    made.problem = checked.error();
    return made;
  }
  if (!options.deep) return made;
  auto checked = verify(**reader, {.threads = options.threads, .within = options.within, .cancel = options.cancel});
  if (!checked)
    made.problem = std::move(checked).error();
  else if (!checked->ok())
    made.problem = fail_all(std::move(checked->problems), checked->more_problems);
  return made;
}

}  // namespace shardmesh
