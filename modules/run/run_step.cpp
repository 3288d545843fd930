// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import :run_record;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

using time_point = std::chrono::system_clock::time_point;

fs::path pin_of(const fs::path& run, std::int64_t step, step_names names) {
  return run / fmt::format(".{}.pinned", folder_name(step, names));
}

time_point last_change(const struct ::stat& status) {
  constexpr std::int64_t furthest = 9'200'000'000;  // the clock's range; any program can set a file's time
  const std::chrono::seconds since(std::clamp<std::int64_t>(status.st_mtim.tv_sec, -furthest, furthest));
  return time_point(std::chrono::duration_cast<time_point::duration>(since));
}

}  // namespace

bool has_pin(const fs::path& run, std::int64_t step, step_names names) {
  struct ::stat status{};
  // A marker that cannot be examined counts: a prune must not delete a pinned step.
  return ::lstat(pin_of(run, step, names).c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

result<std::vector<run_step>> find_steps(const fs::path& run, step_names names) {
  std::vector<run_step> steps;
  std::error_code code;
  for (fs::directory_iterator at(run, code), end; !code && at != end; at.increment(code)) {
    const auto step = step_of_folder(at->path().filename().string(), names);
    struct ::stat status{};
    if (!step || ::stat(at->path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    run_step found;
    found.step = *step;
    found.path = at->path();
    found.saved = last_change(status);
    found.is_pinned = has_pin(run, *step, names);
    steps.push_back(std::move(found));
  }
  if (code) return fail_sys(code.value(), "cannot list", run.string());
  std::sort(steps.begin(), steps.end(), [](const run_step& a, const run_step& b) { return a.step < b.step; });
  return steps;
}

result<std::vector<run_step>> list_steps(const fs::path& run, step_names names) {
  SHARDMESH_TRY(std::vector<run_step> steps, find_steps(run, names));
  SHARDMESH_TRY(const run_record record, run_record::read(run));
  for (run_step& one : steps) {
    const auto found = record.steps.find(one.step);
    if (found == record.steps.end()) continue;
    one.metric = found->second.metric;
    one.is_damaged = found->second.is_damaged;
    one.saved = time_point(std::chrono::duration_cast<time_point::duration>(found->second.saved));
  }
  return steps;
}

std::int64_t stored_bytes_of_step(const fs::path& step) {
  std::int64_t bytes = 0;
  std::error_code code;
  for (fs::recursive_directory_iterator at(step, code), end; !code && at != end; at.increment(code)) {
    std::error_code skipped;
    if (!fs::is_regular_file(at->symlink_status(skipped))) continue;
    const auto size = at->file_size(skipped);
    const auto limit = static_cast<std::uintmax_t>(std::numeric_limits<std::int64_t>::max() - bytes);
    if (!skipped) bytes += static_cast<std::int64_t>(std::min<std::uintmax_t>(size, limit));
  }
  return bytes;
}

result<void> pin_step(const fs::path& run, std::int64_t step, step_names names) {
  std::error_code code;
  if (step < 0 || !fs::is_directory(run / folder_name(step, names), code))
    return fail(errc::invalid_argument, fmt::format("the run has no step {} to pin", step)).with_file(run.string());
  const fs::path marker = pin_of(run, step, names);
  const int fd = ::open(marker.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return fail_sys(errno, "cannot create the marker", marker.string());
  ::close(fd);
  return {};
}

result<void> unpin_step(const fs::path& run, std::int64_t step, step_names names) {
  if (step < 0) return fail(errc::invalid_argument, fmt::format("there is no step {}", step)).with_file(run.string());
  const fs::path marker = pin_of(run, step, names);
  if (::unlink(marker.c_str()) != 0 && errno != ENOENT)
    return fail_sys(errno, "cannot remove the marker", marker.string());
  return {};
}

}  // namespace shardmesh
