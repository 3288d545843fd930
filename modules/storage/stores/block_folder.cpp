// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :block_folder;
import :uninterrupted;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// The head of a block's file: this text, and a digest in hex digits.
constexpr std::string_view format_name = "shardmesh-block1";
constexpr std::size_t head_bytes = format_name.size() + 32;
constexpr std::string_view temporary_prefix = ".shardmesh-block-";
constexpr std::chrono::hours temporary_life{1};  // of the temporary files of killed processes

class open_file {
 public:
  open_file(const fs::path& path, int flags) : fd_(uninterrupted([&] { return ::open(path.c_str(), flags, 0600); })) {}
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() { close(); }

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  // Returns whether the system reports no error, so that all bytes were written.
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd >= 0 && ::close(fd) == 0;
  }
  bool read_all(std::int64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const ssize_t got = uninterrupted([&] { return ::pread(fd_, out.data(), out.size(), offset); });
      if (got <= 0) return false;
      out = out.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
    return true;
  }
  bool write_all(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t put = uninterrupted([&] { return ::write(fd_, bytes.data(), bytes.size()); });
      if (put <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return true;
  }

 private:
  int fd_;
};

std::string name_of(const block_key& key) {
  return fmt::format("{}-{}-{}", to_hex(key.object), key.number, key.length);
}

// The digest also covers the key: a block under another block's name is damaged.
std::array<std::byte, head_bytes> head_of(const block_key& key, std::span<const std::byte> bytes) {
  xxh3_stream sum;
  const std::string name = name_of(key);
  sum.update(std::as_bytes(std::span(name)));
  sum.update(bytes);
  const std::string text = std::string(format_name) + to_hex(sum.digest());
  std::array<std::byte, head_bytes> head{};
  std::memcpy(head.data(), text.data(), std::min(text.size(), head.size()));
  return head;
}

struct kept_file {
  fs::path path;
  fs::file_time_type used;
  std::int64_t size_bytes = 0;
};

bool is_hex(std::string_view text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The user may have named a folder with other files, which are left alone.
bool is_block_name(std::string_view name) {
  const std::size_t dash = name.find('-');
  return dash != std::string_view::npos && is_hex(name.substr(0, dash), 32) &&
         name.find_first_not_of("0123456789-", dash) == std::string_view::npos;
}

void remove_if_old(const fs::directory_entry& temporary) {
  std::error_code code;
  const auto written = temporary.last_write_time(code);
  if (!code && fs::file_time_type::clock::now() - written > temporary_life) fs::remove(temporary.path(), code);
}

void add_blocks_in(const fs::path& folder, std::vector<kept_file>& to) {
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    std::error_code of_file;
    if (!is_block_name(at->path().filename().native()) || !fs::is_regular_file(at->symlink_status(of_file))) continue;
    kept_file one{at->path(), at->last_write_time(of_file), 0};
    if (of_file) continue;  // another process has removed it
    one.size_bytes = static_cast<std::int64_t>(at->file_size(of_file));
    if (!of_file) to.push_back(std::move(one));
  }
}

// Lists the blocks, and removes the temporary files of killed processes.
std::vector<kept_file> kept_files(const fs::path& folder) {
  std::vector<kept_file> found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (is_hex(name, 2)) add_blocks_in(at->path(), found);
    if (name.starts_with(temporary_prefix) && is_hex(std::string_view(name).substr(temporary_prefix.size()), 24))
      remove_if_old(*at);
  }
  return found;
}

}  // namespace

result<std::shared_ptr<block_folder>> block_folder::open(const fs::path& folder, std::int64_t most_bytes) {
  std::error_code code;
  const fs::path whole = fs::absolute(folder, code);
  if (!code) fs::create_directories(whole.parent_path(), code);
  if (code) return fail_sys(code.value(), "cannot make the cache's folder", folder.string());
  if (::mkdir(whole.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_sys(errno, "cannot make the cache's folder", folder.string());
  struct stat status{};
  if (::stat(whole.c_str(), &status) != 0) return fail_sys(errno, "cannot look at the cache's folder", folder.string());
  if (!S_ISDIR(status.st_mode)) return fail_sys(ENOTDIR, "cannot use the cache", folder.string());
  if ((status.st_mode & S_IWOTH) != 0)
    return fail(errc::unsafe_path, "every user of this machine can change the cache")
        .with_file(folder.string())
        .with_hint("name a folder of your own, or remove the permission with chmod o-w");
  const std::shared_ptr<block_folder> made(new block_folder(whole, most_bytes));
  made->trim();
  return made;
}

fs::path block_folder::path_of(const block_key& key) const {
  const std::string name = name_of(key);
  return folder_ / name.substr(0, 2) / name;
}

bool block_folder::read(const block_key& key, std::span<std::byte> out) const {
  const fs::path path = path_of(key);
  // Without O_NONBLOCK, opening a FIFO would wait for its writer.
  const open_file file(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (!file.is_open()) return false;
  struct stat status{};
  // The digest of another user's block proves nothing: that user has computed it.
  if (::fstat(file.fd(), &status) != 0 || status.st_uid != ::geteuid()) return false;
  std::array<std::byte, head_bytes> head{};
  const bool is_whole = S_ISREG(status.st_mode) && status.st_size == static_cast<off_t>(head_bytes + out.size()) &&
                        file.read_all(0, head) && file.read_all(head_bytes, out) && head == head_of(key, out);
  if (!is_whole) {
    ::unlink(path.c_str());
    return false;
  }
  static_cast<void>(::futimens(file.fd(), nullptr));  // it was used now
  return true;
}

bool block_folder::put(const fs::path& path, std::span<const std::byte> head, std::span<const std::byte> bytes) const {
  if (::mkdir(path.parent_path().c_str(), 0700) != 0 && errno != EEXIST) return false;
  std::random_device random;
  const fs::path temporary =
      folder_ / fmt::format("{}{:08x}{:08x}{:08x}", temporary_prefix, random(), random(), random());
  open_file file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW);
  if (!file.is_open()) return false;
  const bool is_written = file.write_all(head) && file.write_all(bytes);
  const bool is_closed = file.close();
  if (is_written && is_closed && ::rename(temporary.c_str(), path.c_str()) == 0) return true;
  ::unlink(temporary.c_str());
  return false;
}

void block_folder::write(const block_key& key, std::span<const std::byte> bytes) {
  if (!is_writing_) return;
  const auto head = head_of(key, bytes);
  if (!put(path_of(key), head, bytes)) {
    is_writing_ = false;
    return;
  }
  const std::int64_t step = std::max<std::int64_t>(most_bytes_ / 16, 1);
  const auto size = static_cast<std::int64_t>(head.size() + bytes.size());
  if (written_bytes_.fetch_add(size) + size < step) return;
  written_bytes_ = 0;
  trim();
}

// Leaves seven eighths of the limit. Processes that write meanwhile do not exceed the limit before their own `trim`.
void block_folder::trim() const {
  const open_file lock(folder_ / ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW);
  // Another process or thread is removing blocks already.
  if (!lock.is_open() || ::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) return;
  std::vector<kept_file> files = kept_files(folder_);
  std::int64_t total = 0;
  for (const kept_file& one : files) total += one.size_bytes;
  const std::int64_t most = most_bytes_ - most_bytes_ / 8;
  if (total <= most) return;
  std::sort(files.begin(), files.end(), [](const kept_file& a, const kept_file& b) { return a.used < b.used; });
  for (const kept_file& one : files) {
    if (total <= most) return;
    std::error_code ignored;
    fs::remove(one.path, ignored);
    total -= one.size_bytes;
  }
}

}  // namespace shardmesh
