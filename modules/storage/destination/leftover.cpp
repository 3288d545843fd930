// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :destination_snapshot;
import :presence;
import :temporary_name;
import :unfinished_uploads;
import :uninterrupted;
import :written_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// False for file systems that only one kernel uses, so that all locks are visible here.
bool is_shared(int descriptor) {
  struct statfs where{};
  if (::fstatfs(descriptor, &where) != 0) return true;
  constexpr std::uint32_t zfs = 0x2FC12FC1, bcachefs = 0xCA451A4E, exfat = 0x2011BAB0;
  switch (static_cast<std::uint32_t>(where.f_type)) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case REISERFS_SUPER_MAGIC:
    case MSDOS_SUPER_MAGIC:
    case zfs:
    case bcachefs:
    case exfat:
      return false;
    default:
      return true;
  }
}

// An open leftover. It takes the lock when no other process has it, so that no other process removes the leftover
// meanwhile.
class opened_leftover {
 public:
  static result<opened_leftover> open(const fs::path& path, const temporary_name& name,
                                      const leftover_options& options) {
    const int fd =
        uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC); });
    if (fd < 0) return fail_sys(errno, "cannot open", path.string());
    opened_leftover made(fd);
    made.judge(name, options);
    return made;
  }
  opened_leftover(opened_leftover&& other) noexcept : fd_(std::exchange(other.fd_, -1)), owner_(other.owner_) {}
  ~opened_leftover() {
    if (fd_ >= 0) ::close(fd_);
  }
  int descriptor() const { return fd_; }
  leftover_owner owner() const { return owner_; }

 private:
  explicit opened_leftover(int fd) : fd_(fd) {}

  void judge(const temporary_name& name, const leftover_options& options) {
    if (name.host == unseen_host) return;
    const bool is_ours = !name.host.empty() && name.host == this_host();
    if (!is_ours && options.shared.value_or(is_shared(fd_))) return;
    if (uninterrupted([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) != 0) {
      owner_ = errno == EWOULDBLOCK ? leftover_owner::alive : leftover_owner::unknown;
      return;
    }
    // Older versions, whose names have no host, took no lock.
    const bool runs = name.host.empty() && (::kill(static_cast<pid_t>(name.process), 0) == 0 || errno == EPERM);
    owner_ = runs ? leftover_owner::alive : leftover_owner::dead;
  }

  int fd_;
  leftover_owner owner_ = leftover_owner::unknown;
};

fs::path absolute_path(const fs::path& path) {
  std::error_code code;
  fs::path whole = fs::absolute(path, code);
  if (!code) whole = fs::weakly_canonical(whole, code);
  if (code) whole = path;
  return whole.has_filename() ? whole : whole.parent_path();
}

result<void> list_uploads(const std::string& url, std::vector<leftover>& found) {
  SHARDMESH_TRY(std::vector<left_upload> uploads, find_unfinished_uploads(url));
  for (left_upload& one : uploads)
    found.push_back(
        {std::move(one.path), one.size_bytes, one.is_dead ? leftover_owner::dead : leftover_owner::unknown});
  return {};
}

// Appends the folder's leftovers: only those of `stems`, or all when it is null.
result<void> list(const fs::path& folder, const std::vector<std::string>* stems, const leftover_options& options,
                  std::vector<leftover>& found) {
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const auto name = parse_temporary_name(at->path().filename().string());
    if (!name || (stems && std::find(stems->begin(), stems->end(), name->stem) == stems->end())) continue;
    const auto seen = look_at(at->path());
    if (!seen || !(seen->is_file() || seen->is_folder())) continue;
    leftover one{at->path(), seen->is_file() ? seen->self->size_bytes : 0};
    for (const auto& [entry, identity] : seen->entries) one.size_bytes += identity.size_bytes;
    const auto opened = opened_leftover::open(at->path(), *name, options);
    if (!opened && opened.error().sys == ENOENT) continue;  // removed meanwhile
    if (opened) one.owner = opened->owner();
    found.push_back(std::move(one));
  }
  if (code) return fail_sys(code.value(), "cannot list", folder.string());
  return {};
}

// Makes the temporary name of a folder durable before its entries are deleted. Otherwise, a power cut could bring an
// incomplete folder back under the name that it had before. A file is deleted whole, under either name.
result<void> make_name_durable(const fs::path& temporary, const fs::path& known) {
  const fs::path parent = temporary.has_parent_path() ? temporary.parent_path() : fs::path(".");
  auto synced = sync_folder(parent, parent.string());
  if (synced) return synced;
  return std::move(synced).error().with_hint(
      escaped(known.string()) + " keeps its entries; remove it again when its parent folder can be synced");
}

}  // namespace

result<std::vector<leftover>> find_leftovers_of(const fs::path& destination) {
  const std::vector<std::string> stems{temporary_stem(destination)};
  std::vector<leftover> found;
  SHARDMESH_TRY(list(destination.parent_path(), &stems, {}, found));
  return found;
}

result<std::vector<leftover>> find_leftovers(const fs::path& path, const leftover_options& options) {
  if (path.empty()) return fail_sys(ENOENT, "cannot list", "''");
  SHARDMESH_TRY(detail::check_not_shortened(path));
  std::vector<leftover> found;
  const auto by_path = [](const leftover& a, const leftover& b) { return a.path < b.path; };
  if (is_url(path)) {
    SHARDMESH_TRY(list_uploads(path.native(), found));
    std::sort(found.begin(), found.end(), by_path);
    return found;
  }
  const fs::path whole = absolute_path(path);
  std::vector<std::string> stems{temporary_stem(whole), temporary_stem(objects_beside(whole))};
  // `path` may be a leftover itself.
  if (const auto name = parse_temporary_name(whole.filename().string())) stems.push_back(name->stem);
  if (whole.has_relative_path())
    if (const auto listed = list(whole.parent_path(), &stems, options, found); !listed)
      return fail_sys(listed.error().sys, "cannot list its folder", path.string());
  std::error_code code;
  if (fs::is_directory(whole, code)) SHARDMESH_TRY(list(whole, nullptr, options, found));
  std::sort(found.begin(), found.end(), by_path);
  return found;
}

result<void> remove_leftover(const fs::path& path, const leftover_options& options) {
  if (is_url(path)) return remove_unfinished_upload(path.native());
  const auto refuse = [&](std::string message) {
    return fail(errc::destination_exists, std::move(message)).with_file(path.string());
  };
  const auto name = parse_temporary_name(path.filename().string());
  if (!name) return refuse("is not a temporary name of shardmesh");
  SHARDMESH_TRY(const opened_leftover opened, opened_leftover::open(path, *name, options));
  if (opened.owner() == leftover_owner::alive) return refuse("is being written");
  if (opened.owner() == leftover_owner::unknown)
    return refuse("is kept: this process cannot determine whether its owner is alive");
  SHARDMESH_TRY(const destination_snapshot seen, look_at(opened.descriptor(), path));
  if (seen.is_file()) {
    if (::unlink(path.c_str()) != 0) return fail_sys(errno, "cannot remove", path.string());
    return {};
  }
  // A complete checkpoint may be the old one of a run that was killed while replacing it. Files that are not part of it
  // must not be deleted.
  if (seen.entries.contains(".metadata") || seen.entries.contains(std::string(checksum_file_name)))
    SHARDMESH_TRY(check_replaceable(options.may_replace, path, seen));
  SHARDMESH_TRY(make_name_durable(path, path));
  remove_seen(opened.descriptor(), seen);
  if (::rmdir(path.c_str()) != 0) return fail_sys(errno, "cannot remove", path.string());
  return {};
}

result<void> discard_destination(const fs::path& path, const folder_rule& may_replace) {
  std::error_code code;
  fs::path whole = fs::absolute(path, code).lexically_normal();
  if (code) return fail_sys(code.value(), "cannot find", path.string());
  if (!whole.has_filename()) whole = whole.parent_path();
  SHARDMESH_TRY(const destination_snapshot seen, look_at(whole));
  if (!seen.self) return fail_sys(ENOENT, "cannot remove", path.string());
  if (!seen.is_file() && !seen.is_folder())
    return fail(errc::destination_exists, "is neither a file nor a folder, and is not removed")
        .with_file(path.string());
  if (seen.is_folder()) SHARDMESH_TRY(check_replaceable(may_replace, whole, seen));
  // The lock shows other processes that this removal is in progress.
  SHARDMESH_TRY(const presence held, presence::on(whole));
  const fs::path temporary =
      whole.parent_path() / make_temporary_name(whole, held.is_unseen() ? unseen_host : std::string_view(this_host()));
  if (::rename(whole.c_str(), temporary.c_str()) != 0)
    return fail_sys(errno, "cannot rename for its removal", path.string());
  const auto now = look_at(held.descriptor(), temporary);
  const auto change = now ? change_between(seen, *now, true) : std::optional(to_string(now.error()));
  const auto restored = [&](error refused) {
    if (::rename(temporary.c_str(), whole.c_str()) == 0) return refused;
    return std::move(refused).with_hint("its name is now " + temporary.string());
  };
  if (change)
    return restored(fail(errc::destination_exists, "changed while it was removed, and is left alone")
                        .with_file(path.string())
                        .with_values("", *change));
  if (seen.is_folder()) {
    if (auto durable = make_name_durable(temporary, path); !durable) return restored(std::move(durable).error());
    remove_seen(held.descriptor(), seen);
  }
  if ((seen.is_folder() ? ::rmdir(temporary.c_str()) : ::unlink(temporary.c_str())) != 0)
    return fail_sys(errno, "cannot remove", temporary.string());
  return {};
}

}  // namespace shardmesh
