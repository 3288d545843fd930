// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
module shardmesh.storage;

import :regular_file;

namespace shardmesh {

result<std::shared_ptr<const mapped_file>> mapped_file::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (is_url(path))
    return fail(errc::unsupported, "a URL cannot be mapped into memory").with_file(name).with_hint("load it");
  SHARDMESH_TRY(const int fd, open_regular(name));
  struct stat status{};
  void* memory = nullptr;
  int refused = 0;
  if (::fstat(fd, &status) != 0) {
    refused = errno;
  } else if (status.st_size > 0) {  // an empty file cannot be mapped
    // Private and read-only: an accidental write of this process is refused and never reaches the file.
    memory = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) refused = errno;
  }
  ::close(fd);
  if (refused != 0) return fail_sys(refused, "cannot map", name);
  const std::span bytes(static_cast<const std::byte*>(memory), static_cast<std::size_t>(status.st_size));
  return std::shared_ptr<const mapped_file>(new mapped_file(name, status.st_dev, status.st_ino, bytes));
}

mapped_file::~mapped_file() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

result<void> mapped_file::check() const {
  struct stat status{};
  // A file that has lost its name cannot be shortened through it.
  if (::stat(path_.c_str(), &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) return {};
  if (static_cast<std::uint64_t>(status.st_size) >= bytes_.size()) return {};
  return fail(errc::io, "became shorter after it was mapped")
      .with_file(path_)
      .with_values(detail::counted(bytes_.size(), "byte"), fmt::format("{}", status.st_size));
}

}  // namespace shardmesh
