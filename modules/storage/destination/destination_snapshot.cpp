// SPDX-License-Identifier: Apache-2.0
module;
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.storage;

import :destination_snapshot;
import :uninterrupted;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

file_identity identity_of(const struct stat& status) {
  const auto time = [](const timespec& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return {status.st_dev,  status.st_ino,        status.st_mode & static_cast<std::uint32_t>(S_IFMT),
          status.st_size, time(status.st_mtim), time(status.st_ctim)};
}

bool is_same_thing(const file_identity& a, const file_identity& b) {
  return a.device == b.device && a.inode == b.inode && a.kind == b.kind;
}

// The largest number of names in one message.
constexpr std::size_t most_named = 3;

class change_list {
 public:
  void add(std::string_view what, const std::string& name) {
    if (++count_ <= most_named) text_ += fmt::format("{}{} {}", text_.empty() ? "" : ", ", what, name);
  }
  std::optional<std::string> take() {
    if (count_ == 0) return std::nullopt;
    if (count_ > most_named) text_ += fmt::format(" and {} more", count_ - most_named);
    return std::move(text_);
  }

 private:
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace

std::string_view name_of_kind(std::uint32_t kind) {
  switch (kind) {
    case S_IFREG:
      return "a file";
    case S_IFDIR:
      return "a folder";
    case S_IFLNK:
      return "a broken symbolic link";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

bool destination_snapshot::is_file() const {
  return self && self->kind == S_IFREG;
}

bool destination_snapshot::is_folder() const {
  return self && self->kind == S_IFDIR;
}

result<destination_snapshot> look_at(const fs::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return destination_snapshot{};
    return fail_sys(errno, "cannot stat", path.string());
  }
  if (!S_ISDIR(status.st_mode)) return destination_snapshot{identity_of(status), {}};
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int fd = uninterrupted([&] { return ::open(path.c_str(), flags); });
  if (fd < 0) return fail_sys(errno, "cannot list", path.string());
  auto seen = look_at(fd, path);
  ::close(fd);
  return seen;
}

result<destination_snapshot> look_at(int descriptor, const fs::path& name) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return fail_sys(errno, "cannot stat", name.string());
  destination_snapshot seen{identity_of(status), {}};
  if (!seen.is_folder()) return seen;
  // Lists through a new descriptor, from the start: `descriptor` may have been read before.
  const int own = uninterrupted([&] { return ::openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const auto close_folder = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(own < 0 ? nullptr : ::fdopendir(own));
  if (!folder) {
    const int sys = errno;
    if (own >= 0) ::close(own);
    return fail_sys(sys, "cannot list", name.string());
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(folder.get());
    if (!entry) break;
    const std::string_view entry_name = entry->d_name;
    if (entry_name == "." || entry_name == "..") continue;
    if (::fstatat(own, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;
      return fail_sys(errno, "cannot stat", (name / entry_name).string());
    }
    seen.entries.emplace(entry_name, identity_of(status));
  }
  if (errno != 0) return fail_sys(errno, "cannot list", name.string());
  return seen;
}

std::optional<std::string> change_between(const destination_snapshot& before, const destination_snapshot& now,
                                          bool after_rename) {
  change_list found;
  if (!now.self) return before.self ? std::optional<std::string>("nothing") : std::nullopt;
  if (!before.self || !is_same_thing(*before.self, *now.self)) {
    for (const auto& [name, identity] : now.entries) found.add("new:", name);
    auto names = found.take();
    return names ? std::move(names) : fmt::format("another: {}", name_of_kind(now.self->kind));
  }
  if (!now.is_folder()) {
    file_identity self = *now.self;
    if (after_rename) self.changed = before.self->changed;
    return self == *before.self ? std::nullopt : std::optional<std::string>("different contents");
  }
  for (const auto& [name, identity] : now.entries) {
    const auto known = before.entries.find(name);
    if (known == before.entries.end())
      found.add("new:", name);
    else if (known->second != identity)
      found.add("changed:", name);
  }
  for (const auto& [name, identity] : before.entries)
    if (!now.entries.contains(name)) found.add("gone:", name);
  return found.take();
}

void remove_seen(int descriptor, const destination_snapshot& seen) {
  for (const auto& [name, identity] : seen.entries) {
    struct stat status{};
    if (::fstatat(descriptor, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    file_identity now = identity_of(status);
    now.changed = identity.changed;  // deleting one of two hard links changes the other
    if (now == identity) ::unlinkat(descriptor, name.c_str(), 0);
  }
}

}  // namespace shardmesh
