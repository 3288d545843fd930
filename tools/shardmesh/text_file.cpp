// SPDX-License-Identifier: Apache-2.0
// Pictures that are asked for as files.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>

#include "report.hpp"

import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;

bool write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) at += static_cast<std::size_t>(written);
  }
  return true;
}

// A device or a pipe is written to; a file is replaced by a whole one.
bool is_written_in_place(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

// A FIFO that nobody reads is an error, not a wait; one that somebody reads is written to as a file is.
bool write_to(const std::string& path, int flags, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0666);
  if (fd < 0) return false;
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  bool good = write_all(fd, text);
  const int cause = errno;
  if (::close(fd) != 0 && good) return false;
  errno = cause;
  return good;
}

}  // namespace

bool write_text_file(const std::string& path, const std::string& text) {
  const auto failed = [&] {
    print_problem(fail_sys(errno, "cannot write", path));
    return false;
  };
  if (is_written_in_place(path)) return write_to(path, 0, text) || failed();
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  if (write_to(temporary, O_CREAT | O_EXCL, text) && ::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int cause = errno;
  ::unlink(temporary.c_str());
  errno = cause;
  return failed();
}

}  // namespace tool
