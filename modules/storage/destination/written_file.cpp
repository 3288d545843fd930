// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <filesystem>
#include <string>
module shardmesh.storage;

import :uninterrupted;
import :written_file;

namespace shardmesh {
namespace {

result<void> sync_opened(const std::filesystem::path& path, int flags, const std::string& name) {
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC); });
  if (fd < 0) return fail_sys(errno, "cannot open for fsync", name);
  auto synced = sync_written(fd, name);
  auto closed = close_written(fd, name);
  return synced ? closed : synced;
}

}  // namespace

result<void> sync_written(int fd, const std::string& name) {
  if (uninterrupted([&] { return ::fsync(fd); }) != 0) return fail_sys(errno, "cannot fsync", name);
  return {};
}

// A signal that interrupts close (EINTR) leaves the descriptor closed and the bytes with the system.
result<void> close_written(int fd, const std::string& name) {
  if (::close(fd) != 0 && errno != EINTR) return fail_sys(errno, "cannot close after writing", name);
  return {};
}

result<void> sync_folder(const std::filesystem::path& folder, const std::string& name) {
  auto synced = sync_opened(folder, O_RDONLY | O_DIRECTORY, name);
  if (!synced && synced.error().sys == EINVAL) return {};
  return synced;
}

result<void> sync_file(const std::filesystem::path& file, const std::string& name) {
  return sync_opened(file, O_RDWR, name);
}

}  // namespace shardmesh
