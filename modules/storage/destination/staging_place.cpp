// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.storage;

import :presence;
import :staging_place;
import :temporary_name;
import :uninterrupted;
import :written_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

result<void> make_folder(const staging_place& place) {
  if (::mkdir(place.path.c_str(), 0777) != 0)
    return place.with_full_folder(fail_sys(errno, "cannot create", place.shown(place.path)));
  return {};
}

}  // namespace

std::string staging_place::path_of(std::int32_t file) const {
  return is_directory ? (path.native() + '/').append(names[static_cast<std::size_t>(file)]) : path.native();
}

std::string staging_place::shown(const fs::path& internal) const {
  const fs::path known = internal == path ? destination : destination / internal.filename();
  return is_url ? printable_url(known.native()) : known.string();
}

error staging_place::with_full_folder(error why) const {
  if (!is_url || why.code != errc::no_space) return why;
  return std::move(why).with_hint(
      fmt::format("free space in {}, where the files are written before they are uploaded, or set TMPDIR to a folder "
                  "with more",
                  beside.string()));
}

result<void> staging_place::make() {
  constexpr int attempts = 10;  // it can be removed as a leftover before the sign is there
  for (int attempt = 1;; ++attempt) {
    path = beside / make_temporary_name(destination);
    SHARDMESH_TRY(is_directory ? make_folder(*this) : make_file(path));
    staged = true;
    auto made = presence::on(path);
    if (made && made->is_unseen()) {
      const fs::path unseen = beside / make_temporary_name(destination, unseen_host);
      if (::rename(path.c_str(), unseen.c_str()) == 0)
        path = unseen;
      else
        made = fail_sys(errno, "cannot rename", shown(path));
    }
    if (made) return ours = *std::move(made), result<void>{};
    if (made.error().sys != ENOENT || attempt == attempts) {
      is_directory ? ::rmdir(path.c_str()) : ::unlink(path.c_str());
      staged = false;
      return std::move(made).error();
    }
  }
}

result<void> staging_place::make_file(const std::string& file) const {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (joined ? O_NOFOLLOW : O_EXCL);
  const int fd = uninterrupted([&] { return ::open(file.c_str(), flags, 0666); });
  if (fd < 0) return with_full_folder(fail_sys(errno, "cannot create", shown(file)));
  auto closed = close_written(fd, {});
  if (closed) return {};
  if (!joined) ::unlink(file.c_str());
  return std::move(closed).error().with_file(shown(file));
}

void staging_place::discard() const {
  if (!ours.is_at(path)) return;
  if (!is_directory && !joined) {
    ::unlink(path.c_str());
    return;
  }
  std::error_code ignored;
  fs::path doomed = discarded_name(path);
  if (::rename(path.c_str(), doomed.c_str()) != 0) {
    if (errno == ENOENT) return;
    doomed = path;
  }
  if (!ours.is_at(doomed)) {
    ::rename(doomed.c_str(), path.c_str());
    return;
  }
  // The process that made a shared folder may have put it in place and taken it back. Until the names are durable, a
  // power cut could bring an incomplete folder back as the destination.
  if (joined && durable && is_directory && !sync_folder(doomed.parent_path(), {})) {
    ::rename(doomed.c_str(), path.c_str());
    return;
  }
  // This fails if another process creates a file meanwhile. The next attempt also deletes that file.
  for (int attempt = 0; attempt < 3; ++attempt) {
    fs::remove_all(doomed, ignored);
    if (!ignored) return;
  }
}

}  // namespace shardmesh
