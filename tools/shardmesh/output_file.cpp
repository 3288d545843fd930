// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "report.hpp"

import shardmesh;
import shardmesh.storage;

namespace tool {
namespace fs = std::filesystem;

using namespace shardmesh;

namespace {

// Whether the path is neither a file, which is replaced by a whole one, nor a folder, which is refused.
bool is_written_in_place(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// A FIFO without a reader is an error, not a wait; one with a reader is written like a file.
bool write_in_place(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd < 0) return false;
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const bool is_good = write_all(fd, text);
  const int cause = errno;
  if (::close(fd) != 0 && is_good) return false;
  errno = cause;
  return is_good;
}

fs::path resolved(const std::string& path) {
  std::error_code code;
  const fs::path absolute = fs::absolute(path, code), canonical = fs::weakly_canonical(absolute, code);
  return code ? absolute : canonical;
}

result<void> check_outside(std::string_view option, const std::string& path, const std::string& checkpoint) {
  const fs::path inside = resolved(path).lexically_relative(resolved(checkpoint));
  if (inside.empty() || *inside.begin() == "..") return {};
  return fail(errc::invalid_argument, fmt::format("{} would write into the checkpoint", option)).with_file(path);
}

}  // namespace

result<output_file> output_file::open(const std::string& path, bool force) {
  output_file made(path);
  if (is_written_in_place(path)) return made;
  if (auto spelled = detail::check_not_shortened(path); !spelled) return std::move(spelled).error();
  const fs::path folder = fs::path(path).parent_path();
  struct stat found{};
  if (!folder.empty() && ::stat(folder.c_str(), &found) != 0) return fail_sys(errno, "cannot write", path);
  auto staged = staged_output::file(path, {.overwrite = force, .durable = false});
  if (!staged) return std::move(staged).error();
  made.staged_ = *std::move(staged);
  return made;
}

result<std::optional<output_file>> output_file::open(std::string_view option, const std::string& path, bool force,
                                                     const std::vector<std::string>& checkpoints) {
  if (path.empty()) return std::optional<output_file>();
  for (const std::string& checkpoint : checkpoints) {
    if (checkpoint.empty()) continue;  // the command reports it
    if (auto outside = check_outside(option, path, checkpoint); !outside) return std::move(outside).error();
  }
  auto made = open(path, force);
  if (!made) return std::move(made).error();
  return std::optional(*std::move(made));
}

result<void> output_file::write_staged(std::string_view text) {
  if (auto room = staged_->reserve(static_cast<std::int64_t>(text.size())); !room) return room;
  const auto file = staged_->add_file("");
  if (!file) return file.error();
  if (auto written = staged_->write(*file, 0, std::as_bytes(std::span(text))); !written) return written;
  return staged_->commit();
}

int output_file::write(std::string_view text) {
  if (!staged_) return write_in_place(path_, text) ? done : report(fail_sys(errno, "cannot write", path_));
  const auto written = write_staged(text);
  print_notes(staged_->notes());
  if (written) return done;
  return report(written.error().file.empty() ? error(written.error()).with_file(path_) : written.error());
}

void add_force_option(CLI::App& command, bool& into, const std::string& options) {
  command.add_flag("--force", into, "With " + options + ": replace an existing FILE");
}

}  // namespace tool
