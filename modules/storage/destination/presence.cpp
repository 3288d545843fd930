// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>
module shardmesh.storage;

import :presence;
import :uninterrupted;

namespace shardmesh {

presence& presence::operator=(presence&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_unseen_, other.is_unseen_);
  return *this;
}

presence::~presence() {
  if (fd_ >= 0) ::close(fd_);
}

result<presence> presence::on(const std::filesystem::path& path) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); });
  if (fd < 0) return fail_sys(errno, "cannot open", path.string());
  presence made(fd);
  // A process that removes leftovers holds the lock exclusively. If one does so now, or the name is already gone, this
  // file is lost.
  const bool is_refused = uninterrupted([&] { return ::flock(fd, LOCK_SH | LOCK_NB); }) != 0;
  const int why = is_refused ? errno : 0;
  if (why == EWOULDBLOCK || !made.is_at(path)) return fail_sys(ENOENT, "was removed", path.string());
  made.is_unseen_ = is_refused && why != ENOSYS && why != EOPNOTSUPP;
  return made;
}

bool presence::is_at(const std::filesystem::path& path) const {
  struct stat mine{}, there{};
  return fd_ >= 0 && ::fstat(fd_, &mine) == 0 && ::lstat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

}  // namespace shardmesh
