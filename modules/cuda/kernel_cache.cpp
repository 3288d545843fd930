// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.cuda;

import shardmesh.digest;

namespace shardmesh::cuda {
namespace {

constexpr std::size_t digest_digits = 64;
constexpr std::size_t header_bytes = digest_digits + 1;  // the digits and a line feed
constexpr std::size_t most_bytes = std::size_t{64} << 20;

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Closes the file. Returns whether that worked: some file systems report a full disk only here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool is_private(const struct stat& found) {
  return found.st_uid == ::geteuid() && (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string octal(unsigned mode) {
  std::string digits;
  for (int shift = 6; shift >= 0; shift -= 3) digits += static_cast<char>('0' + ((mode >> shift) & 7U));
  return digits;
}

// Makes the missing folders of a path. Errors show when the last one is opened.
void make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    static_cast<void>(::mkdir(path.substr(0, end).c_str(), 0700));
  static_cast<void>(::mkdir(path.c_str(), 0700));
}

result<descriptor> open_folder(const std::string& folder) {
  if (folder.empty())
    return fail(errc::io, "compiled kernels have no cache: neither XDG_CACHE_HOME nor HOME is an absolute path");
  descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found{};
  if (!opened.is_open() || ::fstat(opened.get(), &found) != 0)
    return fail_sys(errno, "cannot open the cache of compiled kernels", folder);
  if (!is_private(found))
    return fail(errc::unsupported, "the cache of compiled kernels is not used, because others can write to it")
        .with_file(folder)
        .with_values("a folder of user " + std::to_string(::geteuid()) + " alone",
                     "user " + std::to_string(found.st_uid) + ", mode " + octal(found.st_mode))
        .with_hint("make it your own with mode 700, or name another place in XDG_CACHE_HOME");
  return opened;
}

bool write_all(int fd, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

bool read_all(int fd, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t done = ::read(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

std::string digest_of(std::span<const char> bytes) {
  return sha256::hex_of(std::as_bytes(bytes));
}

}  // namespace

std::string kernel_cache::default_folder() {
  const auto absolute = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value == '/' ? std::string(value) : std::string();
  };
  if (const std::string chosen = absolute("XDG_CACHE_HOME"); !chosen.empty()) return chosen + "/shardmesh/kernels";
  if (const std::string home = absolute("HOME"); !home.empty()) return home + "/.cache/shardmesh/kernels";
  return {};
}

std::vector<char> kernel_cache::read(const std::string& name) const {
  const auto folder = open_folder(folder_);
  if (!folder) return {};
  const descriptor file(::openat(folder->get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found{};
  if (!file.is_open() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || !is_private(found)) return {};
  const auto size = static_cast<std::size_t>(found.st_size);
  if (size <= header_bytes || size > most_bytes) return {};
  std::vector<char> bytes(size);
  if (!read_all(file.get(), bytes)) return {};
  const std::span<const char> content = std::span<const char>(bytes).subspan(header_bytes);
  if (bytes[digest_digits] != '\n' || std::string_view(bytes.data(), digest_digits) != digest_of(content)) return {};
  return {content.begin(), content.end()};
}

result<void> kernel_cache::write(const std::string& name, std::span<const char> content) const {
  if (!folder_.empty()) make_folders(folder_);
  SHARDMESH_TRY(const descriptor folder, open_folder(folder_));
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string partial = name + "." + std::to_string(::getpid()) + "." + std::to_string(now) + ".part";
  const std::string path = folder_ + "/" + name;
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  descriptor file(::openat(folder.get(), partial.c_str(), flags, 0600));
  if (!file.is_open()) return fail_sys(errno, "cannot create the cached kernels", path);
  const std::string header = digest_of(content) + "\n";
  const bool is_written = write_all(file.get(), header) && write_all(file.get(), content) && file.close() &&
                          ::renameat(folder.get(), partial.c_str(), folder.get(), name.c_str()) == 0;
  if (is_written) return {};
  error failed = fail_sys(errno, "cannot write the cached kernels", path);
  static_cast<void>(::unlinkat(folder.get(), partial.c_str(), 0));
  return failed;
}

result<void> kernel_cache::check() const {
  const auto folder = open_folder(folder_);
  if (folder || folder.error().sys == ENOENT) return {};
  return folder.error();
}

}  // namespace shardmesh::cuda
