// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <string>
#include <utility>
module shardmesh.storage;

import :regular_file;
import :destination_snapshot;
import :uninterrupted;

namespace shardmesh {
namespace {

result<void> check_regular(const struct stat& status, const std::string& path) {
  if (S_ISREG(status.st_mode)) return {};
  return fail(errc::bad_format, fmt::format("is {}, not a file", name_of_kind(status.st_mode & S_IFMT)))
      .with_file(path);
}

}  // namespace

result<int> open_regular(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return fail_sys(errno, "cannot open", path);
  SHARDMESH_TRY(check_regular(status, path));
  const int fd = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); });
  if (fd < 0) return fail_sys(errno, "cannot open", path);
  auto looked = ::fstat(fd, &status) == 0 ? check_regular(status, path) : fail_sys(errno, "cannot stat", path);
  if (looked) return fd;
  ::close(fd);
  return std::move(looked).error();
}

}  // namespace shardmesh
