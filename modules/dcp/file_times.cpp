// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <sys/stat.h>

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>
module shardmesh.dcp;

import :file_times;

namespace shardmesh::dcp {
namespace {

struct moment {
  std::int64_t seconds = 0;
  std::uint32_t nanoseconds = 0;
  friend auto operator<=>(const moment&, const moment&) = default;
};

struct times {
  moment written;
  std::optional<moment> born;
};

std::optional<times> times_of(const std::filesystem::path& file) {
  struct statx found{};
  if (::statx(AT_FDCWD, file.c_str(), 0, STATX_MTIME | STATX_BTIME, &found) != 0) return std::nullopt;
  times made{{found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec}, std::nullopt};
  if ((found.stx_mask & STATX_BTIME) != 0) made.born = moment{found.stx_btime.tv_sec, found.stx_btime.tv_nsec};
  return made;
}

}  // namespace

std::vector<std::string> files_rewritten_after(const std::filesystem::path& folder, const std::string& mark,
                                               std::span<const std::string> files) {
  std::vector<std::string> rewritten;
  if (is_url(folder)) return rewritten;  // stores have no time of creation that a copy keeps
  const auto reference = times_of(folder / mark);
  if (!reference) return rewritten;
  // A save creates its files before the mark. A file that was created after the mark is therefore a copy.
  const bool is_dated = reference->born && *reference->born <= reference->written;
  const moment made = is_dated ? *reference->born : reference->written;
  for (const std::string& file : files) {
    const auto found = times_of(folder / file);
    if (!found || found->written <= reference->written) continue;
    const bool copied = found->born && *found->born >= made && *found->born <= found->written;
    if (!copied) rewritten.push_back(file);
  }
  return rewritten;
}

}  // namespace shardmesh::dcp
