// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.storage;

import :descriptors;
import :placing;
import :presence;
import :temporary_name;
import :uninterrupted;
import :upload;
import :written_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// Writers that write one file after another have few files open. A descriptor is synced before it is closed to make
// room for another, so a high limit pays off where tensors go to many files in turn.
constexpr std::size_t most_open = 4096;

// After this many bytes of a file, write-back is started: the disk then writes while later bytes arrive, and the fsync
// at the end finds little to do. Measured on a gibibyte: 0.38 s instead of 0.65 s. Smaller steps gain nothing.
constexpr std::int64_t early_write_bytes = std::int64_t{8} << 20;

// With more files than descriptors, and each written to in turn, every write would close one file, sync it, and open
// another. Small writes are therefore gathered, in this much memory for all files together.
constexpr std::size_t gathered_bytes = std::size_t{16} << 20, most_gathered_bytes = std::size_t{256} << 10;

// Returns the absolute path, with symbolic links followed as far as the path exists. (weakly_canonical leaves "new"
// relative.)
fs::path resolved(const fs::path& path, std::error_code& code) {
  const fs::path absolute = fs::absolute(path, code);
  return code ? path : fs::weakly_canonical(absolute, code);
}

}  // namespace

struct staged_output::state {
  fs::path destination, staging;
  bool is_directory = false;
  bool joined = false;  // another process made it: existing files are shared with others
  output_options options;
  placing place;
  std::optional<upload> remote;  // instead of `place`, if the destination is a URL
  fs::path beside;               // the folder of `staging`
  presence ours;                 // marks `staging` as being written, and identifies our own
  std::vector<std::string> notes;
  bool staged = false;  // something of ours exists at `staging`
  detail::maker_process maker;
  std::vector<std::string> names;
  std::mutex lock;
  std::set<std::int32_t> unsynced;                    // files added or written to since the last `prepare`
  std::map<std::int32_t, std::int64_t> unsent_bytes;  // per file: bytes since write-back was last started
  std::optional<error> lost;                          // the first error at the end of writing to a file
  // The bytes that were written to a file last, and are only in memory.
  struct gathered {
    std::mutex lock;
    std::int64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::map<std::int32_t, gathered> waiting;
  descriptors opened{most_open,
                     [this](std::uint64_t file, int fd) { return end(static_cast<std::int32_t>(file), fd); }};

  // A string, not a path: it is made for each file, and a folder may have a file for each tensor.
  std::string path_of(std::int32_t file) const {
    return is_directory ? (staging.native() + '/').append(names[static_cast<std::size_t>(file)]) : staging.native();
  }

  // Returns the name that users know: the temporary name is internal.
  std::string shown(const fs::path& path) const {
    const fs::path known = path == staging ? destination : destination / path.filename();
    return remote ? printable_url(known.native()) : known.string();
  }

  result<descriptors::use> acquire(std::int32_t file) {
    return opened.acquire(static_cast<std::uint64_t>(file), [&]() -> result<int> {
      const int fd = uninterrupted([&] { return ::open(path_of(file).c_str(), O_RDWR | O_CLOEXEC); });
      if (fd < 0) return fail_sys(errno, "cannot open for writing", shown(path_of(file)));
      return fd;
    });
  }
  // Syncs and closes the descriptor that wrote: the system reports errors of write-back to it alone.
  result<void> end(std::int32_t file, int fd) {
    bool is_owed = false;
    {
      const std::scoped_lock guard(lock);
      is_owed = options.durable && unsynced.erase(file) != 0;
    }
    auto synced = is_owed ? sync_written(fd, {}) : result<void>{};
    auto closed = close_written(fd, {});
    if (synced && closed) return {};
    error why = (synced ? std::move(closed).error() : std::move(synced).error()).with_file(shown(path_of(file)));
    const std::scoped_lock guard(lock);
    if (!lost) lost = why;
    return why;
  }

  result<void> write_now(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes) {
    SHARDMESH_TRY(const auto writable, acquire(file));
    const auto size = static_cast<std::int64_t>(bytes.size());
    while (!bytes.empty()) {
      const ssize_t put = uninterrupted([&] { return ::pwrite(writable.fd(), bytes.data(), bytes.size(), offset); });
      if (put <= 0) return fail_sys(put < 0 ? errno : EIO, "cannot write", destination.string());
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += put;
    }
    write_early(file, writable.fd(), size);
    return {};
  }

  // Returns the number of bytes to gather for one file; 0 unless files have to share the descriptors.
  std::size_t gathers() const {
    return names.size() > opened.most() ? std::min(gathered_bytes / names.size(), most_gathered_bytes) : 0;
  }
  gathered& waiting_of(std::int32_t file) {
    const std::scoped_lock guard(lock);
    return waiting[file];
  }
  result<void> write_gathered(std::int32_t file, gathered& of) {
    if (of.bytes.empty()) return {};
    auto done = write_now(file, of.offset, of.bytes);
    of.bytes.clear();
    if (done) return done;
    const std::scoped_lock guard(lock);
    if (!lost) lost = done.error();  // the call that gathered these bytes has already succeeded
    return done;
  }
  // Writes the gathered bytes first when `bytes` do not continue them or do not fit.
  result<void> gather(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes, std::size_t most) {
    gathered& of = waiting_of(file);
    const std::scoped_lock guard(of.lock);
    const bool continues = offset == of.offset + static_cast<std::int64_t>(of.bytes.size());
    if (!continues || of.bytes.size() + bytes.size() > most) SHARDMESH_TRY(write_gathered(file, of));
    if (bytes.size() >= most) return write_now(file, offset, bytes);
    if (of.bytes.empty()) {
      of.offset = offset;
      of.bytes.reserve(most);
    }
    of.bytes.insert(of.bytes.end(), bytes.begin(), bytes.end());
    return {};
  }
  result<void> write_all_gathered() {
    for (auto& [file, of] : waiting) {
      const std::scoped_lock guard(of.lock);
      SHARDMESH_TRY(write_gathered(file, of));
    }
    return {};
  }

  // A hint to the system: where the file system ignores it, `prepare` does all of the work and finds all of the errors.
  void write_early(std::int32_t file, int fd, std::int64_t bytes) {
    if (!options.durable) return;
    {
      const std::scoped_lock guard(lock);
      unsynced.insert(file);
      std::int64_t& unsent = unsent_bytes[file];
      unsent += bytes;
      if (unsent < early_write_bytes) return;
      unsent = 0;
    }
    static_cast<void>(::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
  }

  // Other processes may be adding to a shared folder, or committing it. The rename settles who is first: afterwards
  // they find nothing at its name. After their commit, the old checkpoint has that name, and it is not ours to delete.
  void discard() const {
    if (!ours.is_at(staging)) return;
    if (!is_directory && !joined) {
      ::unlink(staging.c_str());
      return;
    }
    std::error_code ignored;
    fs::path doomed = discarded_name(staging);
    if (::rename(staging.c_str(), doomed.c_str()) != 0) {
      if (errno == ENOENT) return;
      doomed = staging;
    }
    if (!ours.is_at(doomed)) {
      ::rename(doomed.c_str(), staging.c_str());
      return;
    }
    // This fails if another process creates a file meanwhile. The next attempt also deletes that file.
    for (int attempt = 0; attempt < 3; ++attempt) {
      fs::remove_all(doomed, ignored);
      if (!ignored) return;
    }
  }

  // Restores the old checkpoint when the new one is in place but not durable (`why`): a power cut could remove the new
  // one.
  error take_back(error why) {
    auto in_place = place.take_back(staging, ours);
    if (in_place) {
      staged = false;
      return std::move(why).with_hint(*std::move(in_place));
    }
    static_cast<void>(sync_folder(destination.parent_path(), {}));  // before the new one's files are deleted
    return why;
  }

  // For a URL: the files are written in the folder for temporary files (TMPDIR), and `commit` uploads them.
  result<void> stage_for_upload(const fs::path& url, output_options given) {
    std::string name = url.native();
    while (name.ends_with('/')) name.pop_back();
    destination = name;
    options = std::move(given);
    SHARDMESH_TRY(remote, upload::look(std::move(name), is_directory, options));
    options.durable = false;  // the server keeps the data, not the temporary files
    std::error_code code;
    beside = fs::temp_directory_path(code);
    if (code) return fail_sys(code.value(), "cannot find the folder for temporary files; set TMPDIR", shown(staging));
    look_for_leftovers();
    return {};
  }

  // Notes the leftovers of killed runs that were writing this destination; removes them with `overwrite`.
  void look_for_leftovers() {
    const auto found = find_leftovers_of(beside / destination.filename());
    if (!found) return;  // a courtesy: nothing later depends on it
    for (const leftover& one : *found) {
      if (one.owner != leftover_owner::dead) continue;
      const bool is_removed = options.overwrite && remove_leftover(one.path, {.may_replace = options.may_replace});
      notes.push_back(fmt::format("{}: {} left by a run that was killed{}", one.path.string(),
                                  human_bytes(one.size_bytes), is_removed ? "; removed" : "; it is not needed"));
    }
  }

  // Creates an empty `staging` with the sign that it is being written.
  result<void> make_staging() {
    constexpr int attempts = 10;  // it can be removed as a leftover before the sign is there
    for (int attempt = 1;; ++attempt) {
      staging = beside / make_temporary_name(destination);
      SHARDMESH_TRY(is_directory ? make_folder() : make_file(staging));
      staged = true;
      auto made = presence::on(staging);
      if (made && made->is_unseen()) {
        const fs::path unseen = beside / make_temporary_name(destination, unseen_host);
        if (::rename(staging.c_str(), unseen.c_str()) == 0)
          staging = unseen;
        else
          made = fail_sys(errno, "cannot rename", shown(staging));
      }
      if (made) return ours = *std::move(made), result<void>{};
      if (made.error().sys != ENOENT || attempt == attempts) {
        is_directory ? ::rmdir(staging.c_str()) : ::unlink(staging.c_str());
        staged = false;
        return std::move(made).error();
      }
    }
  }
  result<void> make_folder() const {
    if (::mkdir(staging.c_str(), 0777) != 0) return fail_sys(errno, "cannot create", shown(staging));
    return {};
  }
  // In a shared folder, another process may have made the file already.
  result<void> make_file(const std::string& path) const {
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (joined ? O_NOFOLLOW : O_EXCL);
    const int fd = uninterrupted([&] { return ::open(path.c_str(), flags, 0666); });
    if (fd < 0) return fail_sys(errno, "cannot create", shown(path));
    auto closed = close_written(fd, {});
    if (closed) return {};
    if (!joined) ::unlink(path.c_str());
    return std::move(closed).error().with_file(shown(path));
  }
};

staged_output::staged_output(std::unique_ptr<state> made) : state_(std::move(made)) {}
staged_output::staged_output(staged_output&&) noexcept = default;
staged_output& staged_output::operator=(staged_output&&) noexcept = default;

staged_output::~staged_output() {
  if (!state_) return;
  state_->opened.abandon_all();
  // A forked child has a copy of this object: the output remains the parent's.
  if (state_->staged && state_->maker.is_this()) state_->discard();
}

result<staged_output> staged_output::file(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  if (is_url(destination)) {
    SHARDMESH_TRY(made->stage_for_upload(destination, std::move(options)));
    return staged_output(std::move(made));
  }
  SHARDMESH_TRY(detail::check_not_shortened(destination));
  std::error_code code;
  made->destination = resolved(destination, code);
  made->options = std::move(options);
  if (code == std::errc::not_enough_memory)
    return fail_sys(code.value(), "cannot resolve the path", destination.string());
  if (code || made->destination.filename().empty())
    return fail(errc::invalid_argument, "is not a file name").with_file(destination.string());
  SHARDMESH_TRY(made->place, placing::look(made->destination, made->is_directory, made->options));
  made->beside = made->destination.parent_path();
  made->look_for_leftovers();
  return staged_output(std::move(made));
}

result<staged_output> staged_output::directory(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  if (is_url(destination)) {
    made->is_directory = true;
    SHARDMESH_TRY(made->stage_for_upload(destination, std::move(options)));
    SHARDMESH_TRY(made->make_staging());
    return staged_output(std::move(made));
  }
  SHARDMESH_TRY(detail::check_not_shortened(destination));
  std::error_code code;
  made->destination = resolved(destination, code);
  if (!code && made->destination.filename().empty()) made->destination = made->destination.parent_path();
  made->options = std::move(options);
  made->is_directory = true;
  if (code == std::errc::not_enough_memory)
    return fail_sys(code.value(), "cannot resolve the path", destination.string());
  if (code || made->destination.filename().empty())
    return fail(errc::invalid_argument, "is not a folder name").with_file(destination.string());
  SHARDMESH_TRY(made->place, placing::look(made->destination, made->is_directory, made->options));
  made->beside = made->destination.parent_path();
  made->look_for_leftovers();
  SHARDMESH_TRY(made->make_staging());
  return staged_output(std::move(made));
}

result<staged_output> staged_output::join(const fs::path& folder, output_options options) {
  auto made = std::make_unique<state>();
  std::error_code code;
  const fs::file_status there = fs::symlink_status(folder, code);
  if (!fs::is_directory(there) && !fs::is_regular_file(there))
    return fail_sys(code ? code.value() : ENOENT, "this rank does not see the folder of the save", folder.string());
  SHARDMESH_TRY(made->ours, presence::on(folder));
  made->staging = folder;
  made->destination = folder;  // for messages
  made->options = std::move(options);
  made->is_directory = fs::is_directory(there);
  made->joined = made->staged = true;
  return staged_output(std::move(made));
}

const fs::path& staged_output::folder() const {
  return state_->staging;
}

void staged_output::release() {
  state_->staged = false;
}

result<std::int32_t> staged_output::add_file(std::string_view name) {
  SHARDMESH_TRY(state_->write_all_gathered());  // files are written in the order in which they are added
  const auto number = static_cast<std::int32_t>(state_->names.size());
  state_->names.emplace_back(name);
  if (!state_->joined) state_->unsynced.insert(number);
  if (state_->is_directory)
    SHARDMESH_TRY(state_->make_file(state_->path_of(number)));
  else if (!state_->joined)
    SHARDMESH_TRY(state_->make_staging());
  return number;
}

result<void> staged_output::reserve(std::int64_t bytes) const {
  const fs::path folder = state_->joined ? state_->destination.parent_path() : state_->beside;
  struct statvfs room{};
  // A file system that does not know its size counts as having room.
  if (::statvfs(folder.c_str(), &room) != 0 || room.f_blocks == 0) return {};
  const std::uint64_t blocks = ::geteuid() == 0 ? room.f_bfree : room.f_bavail;
  if (static_cast<double>(blocks) * static_cast<double>(room.f_frsize) >= static_cast<double>(bytes)) return {};
  error full = fail_sys(ENOSPC, "there is not enough space for the data", state_->destination.string());
  return std::move(full).with_values(fmt::format("{} bytes of free space", bytes),
                                     fmt::format("{}", blocks * room.f_frsize));
}

const std::vector<std::string>& staged_output::notes() const {
  return state_->notes;
}

result<void> staged_output::write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes) {
  const std::size_t most = state_->gathers();
  return most == 0 ? state_->write_now(file, offset, bytes) : state_->gather(file, offset, bytes, most);
}

result<void> staged_output::read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const {
  if (state_->gathers() > 0) {
    state::gathered& of = state_->waiting_of(file);
    const std::scoped_lock guard(of.lock);
    SHARDMESH_TRY(state_->write_gathered(file, of));
  }
  SHARDMESH_TRY(const auto opened, state_->acquire(file));
  result<void> done;
  while (!bytes.empty() && done) {
    const ssize_t got = uninterrupted([&] { return ::pread(opened.fd(), bytes.data(), bytes.size(), offset); });
    if (got <= 0) {
      done = fail_sys(got < 0 ? errno : EIO, "cannot read back", state_->destination.string());
    } else {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
  }
  return done;
}

result<void> staged_output::remove_file(std::int32_t file) {
  state_->opened.forget(static_cast<std::uint64_t>(file));
  state_->waiting.erase(file);
  const fs::path path = state_->path_of(file);
  if (::unlink(path.c_str()) != 0) return fail_sys(errno, "cannot remove", state_->shown(path));
  state_->unsynced.erase(file);
  return {};
}

// An earlier error remains an error: the bytes that it reports are lost.
result<void> staged_output::prepare() {
  static_cast<void>(state_->write_all_gathered());
  static_cast<void>(state_->opened.close_all());
  if (state_->lost) return *state_->lost;
  if (!state_->options.durable) return {};
  while (!state_->unsynced.empty()) {  // files that were added and not written to
    const fs::path path = state_->path_of(*state_->unsynced.begin());
    SHARDMESH_TRY(sync_file(path, state_->shown(path)));
    state_->unsynced.erase(state_->unsynced.begin());
  }
  return state_->is_directory ? sync_folder(state_->staging, state_->destination.string()) : result<void>{};
}

result<void> staged_output::commit() {
  SHARDMESH_TRY(prepare());
  if (state_->remote) return state_->remote->put(state_->staging, state_->notes);  // the destructor removes `staging`
  placing& place = state_->place;
  auto placed = place.put(state_->staging);
  if (!placed) {
    if (place.is_kept()) state_->staged = false;  // it holds another process's data
    return placed;
  }
  const fs::path parent = state_->destination.parent_path();
  auto synced = state_->options.durable ? sync_folder(parent, parent.string()) : result<void>{};
  if (!synced) return state_->take_back(std::move(synced).error());
  state_->staged = false;
  if (place.has_old())
    if (auto left = place.remove_old(state_->staging)) state_->notes.push_back(*std::move(left));
  return {};
}

}  // namespace shardmesh
