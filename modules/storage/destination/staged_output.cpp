// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :placing;
import :presence;
import :staged_files;
import :staging_place;
import :upload;
import :written_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// Returns the absolute path, with symbolic links followed as far as the path exists. (weakly_canonical leaves "new"
// relative.)
fs::path resolved(const fs::path& path, std::error_code& code) {
  const fs::path absolute = fs::absolute(path, code);
  return code ? path : fs::weakly_canonical(absolute, code);
}

}  // namespace

struct staged_output::state {
  output_options options;
  placing place;
  std::optional<upload> remote;  // instead of `place`, if the destination is a URL
  staging_place where;
  staged_files files{where, options};
  std::vector<std::string> notes;
  detail::maker_process maker;

  // Restores the old checkpoint when the new one is in place but not durable (`why`): a power cut could remove the new
  // one.
  error take_back(error why) {
    auto in_place = place.take_back(where.path, where.ours);
    if (in_place) {
      where.staged = false;
      return std::move(why).with_hint(*std::move(in_place));
    }
    return keep_unless_durable(std::move(why));
  }

  // After our folder had the destination's name: makes the restored names durable before its files are deleted. A power
  // cut could otherwise bring an incomplete folder back as the destination. If the fsync fails, the folder stays.
  error keep_unless_durable(error why) {
    const fs::path parent = where.destination.parent_path();
    if (!options.durable || !where.is_directory || sync_folder(parent, parent.string())) return why;
    where.staged = false;
    return std::move(why).with_hint(
        fmt::format("the new one is kept as {}; remove it with `shardmesh clean` when its parent folder can be synced",
                    where.path.string()));
  }

  // For a URL: the files are written in the folder for temporary files (TMPDIR), and `commit` uploads them.
  result<void> stage_for_upload(const fs::path& url, output_options given) {
    std::string name = url.native();
    while (name.ends_with('/')) name.pop_back();
    where.destination = std::move(name);
    where.is_url = true;
    options = std::move(given);
    SHARDMESH_TRY(remote, upload::look(url.native(), where.is_directory, options));
    options.durable = false;  // the server keeps the data, not the temporary files
    std::error_code code;
    where.beside = fs::temp_directory_path(code);
    if (code)
      return fail_sys(code.value(), "cannot find the folder for temporary files; set TMPDIR", where.shown(where.path));
    look_for_leftovers();
    return {};
  }

  // Notes the leftovers of killed runs that were writing this destination; removes them with `overwrite`.
  void look_for_leftovers() {
    const auto found = find_leftovers_of(where.beside / where.destination.filename());
    if (!found) return;  // a courtesy: nothing later depends on it
    for (const leftover& one : *found) {
      if (one.owner != leftover_owner::dead) continue;
      const bool is_removed = options.overwrite && remove_leftover(one.path, {.may_replace = options.may_replace});
      notes.push_back(fmt::format("{}: {} left by a run that was killed{}", one.path.string(),
                                  human_bytes(one.size_bytes), is_removed ? "; removed" : "; it is not needed"));
    }
  }
};

staged_output::staged_output(std::unique_ptr<state> made) : state_(std::move(made)) {}
staged_output::staged_output(staged_output&&) noexcept = default;
staged_output& staged_output::operator=(staged_output&&) noexcept = default;

staged_output::~staged_output() {
  if (!state_) return;
  state_->files.abandon();
  // A forked child has a copy of this object: the output remains the parent's.
  if (state_->where.staged && state_->maker.is_this()) state_->where.discard();
}

result<staged_output> staged_output::file(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  if (is_url(destination)) {
    SHARDMESH_TRY(made->stage_for_upload(destination, std::move(options)));
    return staged_output(std::move(made));
  }
  SHARDMESH_TRY(detail::check_not_shortened(destination));
  std::error_code code;
  made->where.destination = resolved(destination, code);
  made->options = std::move(options);
  if (code == std::errc::not_enough_memory)
    return fail_sys(code.value(), "cannot resolve the path", destination.string());
  if (code || made->where.destination.filename().empty())
    return fail(errc::invalid_argument, "is not a file name").with_file(destination.string());
  SHARDMESH_TRY(made->place, placing::look(made->where.destination, made->where.is_directory, made->options));
  made->where.beside = made->where.destination.parent_path();
  made->look_for_leftovers();
  return staged_output(std::move(made));
}

result<staged_output> staged_output::directory(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  if (is_url(destination)) {
    made->where.is_directory = true;
    SHARDMESH_TRY(made->stage_for_upload(destination, std::move(options)));
    SHARDMESH_TRY(made->where.make());
    return staged_output(std::move(made));
  }
  SHARDMESH_TRY(detail::check_not_shortened(destination));
  std::error_code code;
  made->where.destination = resolved(destination, code);
  if (!code && made->where.destination.filename().empty())
    made->where.destination = made->where.destination.parent_path();
  made->options = std::move(options);
  made->where.is_directory = true;
  if (code == std::errc::not_enough_memory)
    return fail_sys(code.value(), "cannot resolve the path", destination.string());
  if (code || made->where.destination.filename().empty())
    return fail(errc::invalid_argument, "is not a folder name").with_file(destination.string());
  SHARDMESH_TRY(made->place, placing::look(made->where.destination, made->where.is_directory, made->options));
  made->where.beside = made->where.destination.parent_path();
  made->look_for_leftovers();
  SHARDMESH_TRY(made->where.make());
  return staged_output(std::move(made));
}

result<staged_output> staged_output::join(const fs::path& folder, output_options options) {
  auto made = std::make_unique<state>();
  std::error_code code;
  const fs::file_status there = fs::symlink_status(folder, code);
  if (!fs::is_directory(there) && !fs::is_regular_file(there))
    return fail_sys(code ? code.value() : ENOENT, "this rank does not see the folder of the save", folder.string());
  SHARDMESH_TRY(made->where.ours, presence::on(folder));
  made->where.path = folder;
  made->where.destination = folder;  // for messages
  made->options = std::move(options);
  made->where.is_directory = fs::is_directory(there);
  made->where.joined = made->where.staged = true;
  made->where.durable = made->options.durable;
  return staged_output(std::move(made));
}

const fs::path& staged_output::folder() const {
  return state_->where.path;
}

void staged_output::release() {
  state_->where.staged = false;
}

result<std::int32_t> staged_output::add_file(std::string_view name) {
  SHARDMESH_TRY(state_->files.write_all_gathered());  // files are written in the order in which they are added
  const auto number = static_cast<std::int32_t>(state_->where.names.size());
  state_->where.names.emplace_back(name);
  if (!state_->where.joined) state_->files.note_added(number);
  if (state_->where.is_directory)
    SHARDMESH_TRY(state_->where.make_file(state_->where.path_of(number)));
  else if (!state_->where.joined)
    SHARDMESH_TRY(state_->where.make());
  return number;
}

result<void> staged_output::reserve(std::int64_t bytes) const {
  const fs::path folder = state_->where.joined ? state_->where.destination.parent_path() : state_->where.beside;
  struct statvfs room{};
  // A file system that does not know its size counts as having room.
  if (::statvfs(folder.c_str(), &room) != 0 || room.f_blocks == 0) return {};
  const std::uint64_t blocks = ::geteuid() == 0 ? room.f_bfree : room.f_bavail;
  if (static_cast<double>(blocks) * static_cast<double>(room.f_frsize) >= static_cast<double>(bytes)) return {};
  error full = fail_sys(ENOSPC, "there is not enough space for the data", state_->where.destination.string());
  return state_->where.with_full_folder(std::move(full).with_values(fmt::format("{} bytes of free space", bytes),
                                                                    fmt::format("{}", blocks * room.f_frsize)));
}

const std::vector<std::string>& staged_output::notes() const {
  return state_->notes;
}

result<void> staged_output::write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes) {
  return state_->files.write(file, offset, bytes);
}

result<void> staged_output::read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const {
  return state_->files.read(file, offset, bytes);
}

result<void> staged_output::remove_file(std::int32_t file) {
  return state_->files.remove(file);
}

result<void> staged_output::prepare() {
  SHARDMESH_TRY(state_->files.finish());
  const staging_place& where = state_->where;
  return state_->options.durable && where.is_directory ? sync_folder(where.path, where.destination.string())
                                                       : result<void>{};
}

result<void> staged_output::commit() {
  SHARDMESH_TRY(prepare());
  if (state_->remote)
    return state_->remote->put(state_->where.path, state_->notes);  // the destructor removes these files
  placing& place = state_->place;
  auto placed = place.put(state_->where.path);
  if (!placed) {
    if (place.is_kept())
      state_->where.staged = false;  // it holds another process's data
    else if (place.was_in_place())
      return state_->keep_unless_durable(std::move(placed).error());
    return placed;
  }
  const fs::path parent = state_->where.destination.parent_path();
  auto synced = state_->options.durable ? sync_folder(parent, parent.string()) : result<void>{};
  if (!synced) return state_->take_back(std::move(synced).error());
  state_->where.staged = false;
  if (place.has_old())
    if (auto left = place.remove_old(state_->where.path)) state_->notes.push_back(*std::move(left));
  return {};
}

}  // namespace shardmesh
