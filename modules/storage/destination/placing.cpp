// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.storage;

import :placing;
import :presence;
import :destination_snapshot;
import :temporary_name;
import :uninterrupted;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

int exchange(const fs::path& one, const fs::path& other) {
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE));
}

bool is_unknown_to_file_system(int sys) {
  return sys == EINVAL || sys == ENOSYS || sys == EOPNOTSUPP || sys == EPERM;
}

// Renames a file to an unused name; returns 0 or errno. Without RENAME_NOREPLACE, makes a hard link instead; without
// hard links, an empty file reserves the name first.
int rename_to_new(const fs::path& from, const fs::path& to) {
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (!is_unknown_to_file_system(errno)) return errno;
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return 0;
  }
  if (!is_unknown_to_file_system(errno)) return errno;
  const int fd = uninterrupted([&] { return ::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (fd < 0) return errno;
  if ((::close(fd) == 0 || errno == EINTR) && ::rename(from.c_str(), to.c_str()) == 0) return 0;
  const int sys = errno;
  ::unlink(to.c_str());
  return sys;
}

error appeared(const fs::path& destination, std::string what) {
  return fail(errc::destination_exists, "appeared or changed while the new one was written, and is left alone")
      .with_file(destination.string())
      .with_values("", std::move(what));
}

}  // namespace

result<placing> placing::look(fs::path destination, bool is_directory, const output_options& options) {
  placing made;
  made.destination_ = std::move(destination);
  made.is_directory_ = is_directory;
  SHARDMESH_TRY(made.before_, look_at(made.destination_));
  const destination_snapshot& before = made.before_;
  const auto exists = [&](std::string message) {
    return fail(errc::destination_exists, std::move(message)).with_file(made.destination_.string());
  };
  if (before.self && !before.is_file() && !before.is_folder())
    return exists(fmt::format("is {}, which is not replaced", name_of_kind(before.self->kind)));
  if (!is_directory && before.is_folder()) return exists("is a folder");
  if (is_directory && before.is_file()) return exists("is a file, and a folder is to be written");
  if (before.self && !before.is_empty_folder()) {
    if (!options.overwrite) return exists("exists already").with_hint("pass overwrite to replace it");
    if (is_directory) SHARDMESH_TRY(check_replaceable(options.may_replace, made.destination_, before));
  }
  std::error_code code;
  if (!fs::is_directory(made.destination_.parent_path(), code))
    return fail(errc::invalid_argument, is_directory ? "its parent folder does not exist" : "its folder does not exist")
        .with_file(made.destination_.string());
  return made;
}

result<void> placing::put(const fs::path& staging) {
  SHARDMESH_TRY(const destination_snapshot now, look_at(destination_));
  const bool is_free = !now.self || (is_directory_ && now.is_empty_folder());
  if (is_free) return put_new(staging);
  if (auto what = change_between(before_, now, false)) return appeared(destination_, *std::move(what));
  return replace(staging);
}

// rename(2) of a folder replaces nothing but an empty folder.
result<void> placing::put_new(const fs::path& staging) {
  int sys = 0;
  struct stat empty{};
  if (is_directory_ && ::lstat(destination_.c_str(), &empty) == 0) filled_folder_ = empty.st_mode & 07777;
  if (!is_directory_)
    sys = rename_to_new(staging, destination_);
  else if (::rename(staging.c_str(), destination_.c_str()) != 0)
    sys = errno;
  if (sys == 0) return {};
  if (sys != EEXIST && sys != ENOTEMPTY && !(is_directory_ && sys == ENOTDIR))
    return fail_sys(sys, "cannot rename into place", destination_.string());
  const auto now = look_at(destination_);
  auto what = now ? change_between(before_, *now, false) : std::nullopt;
  return appeared(destination_, what ? *std::move(what) : "something else");
}

// Exchanges both names, which is atomic. The file or folder that comes out must be the one that was examined.
result<void> placing::replace(const fs::path& staging) {
  if (auto held = presence::on(destination_)) old_ = *std::move(held);
  if (exchange(staging, destination_) != 0) {
    if (is_directory_ || !is_unknown_to_file_system(errno))
      return fail_sys(errno, "cannot exchange with the existing one (does the file system support it?)",
                      destination_.string());
    if (::rename(staging.c_str(), destination_.c_str()) != 0)
      return fail_sys(errno, "cannot rename into place", destination_.string());
    has_overwritten_ = true;
    return {};
  }
  const auto out = look_at(staging);
  auto what = out ? change_between(before_, *out, true) : std::optional(to_string(out.error()));
  if (!what) {
    has_old_ = true;
    return {};
  }
  was_in_place_ = true;
  error refused = appeared(destination_, *std::move(what));
  if (exchange(staging, destination_) == 0) return refused;
  return std::move(refused).with_hint(
      fmt::format("the new one has its name; the old one could not be restored and is {}", keep(staging).string()));
}

std::optional<std::string> placing::take_back(const fs::path& staging, const presence& ours) {
  if (has_old_ ? take_back_old(staging, ours) : !has_overwritten_ && take_back_new(staging, ours)) {
    has_old_ = false;
    return std::nullopt;
  }
  std::string text = "the new one is in place and complete, but a power failure may lose it";
  if (has_old_) text += fmt::format("; the old one is {}", keep(staging).string());
  return text;
}

bool placing::take_back_new(const fs::path& staging, const presence& ours) const {
  if (!ours.is_at(destination_)) return false;
  const int sys = is_directory_ ? (::rename(destination_.c_str(), staging.c_str()) == 0 ? 0 : errno)
                                : rename_to_new(destination_, staging);
  if (sys != 0) return false;
  if (!ours.is_at(staging)) {  // another process put its checkpoint here
    if (::rename(staging.c_str(), destination_.c_str()) != 0) return false;
    return false;
  }
  if (filled_folder_) ::mkdir(destination_.c_str(), *filled_folder_);
  return true;
}

bool placing::take_back_old(const fs::path& staging, const presence& ours) const {
  const auto is_whole = [&](const fs::path& name) {
    const auto now = look_at(name);
    return now && !change_between(before_, *now, true);
  };
  if (!ours.is_at(destination_) || !is_whole(staging) || exchange(staging, destination_) != 0) return false;
  if (ours.is_at(staging)) return true;
  exchange(staging, destination_);
  return false;
}

std::optional<std::string> placing::remove_old(const fs::path& staging) {
  has_old_ = false;
  if (!is_directory_) {
    ::unlink(staging.c_str());
    return std::nullopt;
  }
  // Entries that remain after an error become an ordinary leftover. Entries that another program added are not ours,
  // and get a name that is never cleaned.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (old_.is_at(staging)) remove_seen(old_.descriptor(), before_);
    if (::rmdir(staging.c_str()) == 0) return std::nullopt;
  }
  const auto left = look_at(staging);
  const bool is_ours = left && std::all_of(left->entries.begin(), left->entries.end(),
                                           [&](const auto& entry) { return before_.entries.contains(entry.first); });
  if (is_ours)
    return fmt::format("{}: the rest of the old folder, which could not be removed completely", staging.string());
  return fmt::format("{}: the rest of the old folder: an entry was added to it while it was replaced",
                     keep(staging).string());
}

fs::path placing::keep(const fs::path& staging) {
  is_kept_ = true;
  fs::path kept = destination_.parent_path() / kept_name(destination_);
  return ::rename(staging.c_str(), kept.c_str()) == 0 ? kept : staging;
}

}  // namespace shardmesh
