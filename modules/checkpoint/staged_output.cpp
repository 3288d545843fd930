// SPDX-License-Identifier: Apache-2.0
module;
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_open = 48;  // with a pool of readers, well below the common limit of 256

// After so many bytes of a file the disk is told to begin: what is written later overlaps with it, and the fsync at the
// end finds little to do. Measured on a gibibyte: 0.38 s instead of 0.65 s. Smaller steps gain nothing.
constexpr std::int64_t early_write_bytes = std::int64_t{8} << 20;

result<void> sync_path(const fs::path& path, bool is_directory) {
  const int fd = ::open(path.c_str(), (is_directory ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_CLOEXEC);
  if (fd < 0) return fail_sys(errno, "cannot open for fsync", path.string());
  const int status = ::fsync(fd);
  const int sys = errno;
  ::close(fd);
  // Some file systems have no fsync of folders (EINVAL): nothing more can be done there.
  if (status != 0 && !(is_directory && sys == EINVAL)) return fail_sys(sys, "cannot fsync", path.string());
  return {};
}

// Absolute, symbolic links followed as far as the path exists. (weakly_canonical leaves "new" relative.)
fs::path resolved(const fs::path& path, std::error_code& code) {
  const fs::path absolute = fs::absolute(path, code);
  return code ? path : fs::weakly_canonical(absolute, code);
}

std::string temporary_name(const fs::path& destination) {
  std::random_device random;
  return fmt::format(".{}.shardmesh-tmp-{}-{:08x}", destination.filename().string(), ::getpid(), random());
}

// Only what checkpoints are made of may be deleted by an overwrite.
bool belongs_to_checkpoint(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  const std::string extension = entry.path().extension().string();
  if (entry.is_directory()) return false;
  return name.starts_with(".metadata") || name.starts_with(".shardmesh") || extension == ".distcp" ||
         extension == ".safetensors" || extension == ".metadata" || name.ends_with(".safetensors.index.json") ||
         name.ends_with(".objects.json") || name == "objects.json";
}

result<void> check_replaceable(const fs::path& destination) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(destination, code))
    if (!belongs_to_checkpoint(entry))
      return fail(errc::destination_exists, "the folder holds more than a checkpoint and is not replaced")
          .with_file(destination.string())
          .with_values("", entry.path().filename().string())
          .with_hint("choose another destination or remove it yourself");
  if (code) return fail_sys(code.value(), "cannot list", destination.string());
  return {};
}

}  // namespace

struct staged_output::state {
  struct open_file {
    std::int32_t file;
    int fd;
    int users;
    std::int64_t unsent_bytes = 0;  // written since the disk was last told to begin
  };

  fs::path destination, staging;
  bool is_directory = false;
  output_options options;
  std::size_t synced = 0;  // files that `prepare` is done with
  bool staged = false;     // something of ours exists at `staging`
  std::vector<std::string> names;
  std::set<std::int32_t> removed;
  std::mutex lock;
  std::list<open_file> opened;  // most recently used first

  fs::path path_of(std::int32_t file) const {
    return is_directory ? staging / names[static_cast<std::size_t>(file)] : staging;
  }

  result<std::list<open_file>::iterator> acquire(std::int32_t file) {
    const std::scoped_lock guard(lock);
    const auto found = std::find_if(opened.begin(), opened.end(), [&](const open_file& o) { return o.file == file; });
    if (found != opened.end()) {
      ++found->users;
      opened.splice(opened.begin(), opened, found);
      return opened.begin();
    }
    if (opened.size() >= most_open)
      for (auto last = opened.end(); last != opened.begin();)
        if ((--last)->users == 0) {
          ::close(last->fd);
          opened.erase(last);
          break;
        }
    const int fd = ::open(path_of(file).c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return fail_sys(errno, "cannot open for writing", path_of(file).string());
    opened.push_front({file, fd, 1});
    return opened.begin();
  }
  void release(std::list<open_file>::iterator entry) {
    const std::scoped_lock guard(lock);
    --entry->users;
  }
  // A hint: where the file system does not know it, `prepare` does all of the work, and finds all of the errors.
  void write_early(std::list<open_file>::iterator entry, std::int64_t bytes) {
    if (!options.durable) return;
    {
      const std::scoped_lock guard(lock);
      entry->unsent_bytes += bytes;
      if (entry->unsent_bytes < early_write_bytes) return;
      entry->unsent_bytes = 0;
    }
    static_cast<void>(::sync_file_range(entry->fd, 0, 0, SYNC_FILE_RANGE_WRITE));
  }
  void close_all() {
    for (const open_file& o : opened) ::close(o.fd);
    opened.clear();
  }

  // Other processes may be adding files to a directory, or committing it. The rename settles who is first: they find
  // nothing at its name afterwards.
  void discard() const {
    std::error_code ignored;
    fs::path doomed = staging;
    if (is_directory) {
      doomed += fmt::format("-discarded-{}", ::getpid());
      fs::rename(staging, doomed, ignored);
      if (ignored == std::errc::no_such_file_or_directory) return;
      if (ignored) doomed = staging;
    }
    // A file that a process was just creating makes this fail: it is gone the next time.
    for (int attempt = 0; attempt < 3; ++attempt) {
      fs::remove_all(doomed, ignored);
      if (!ignored) return;
    }
  }

  result<void> rename_into_place() {
    if (::rename(staging.c_str(), destination.c_str()) == 0) return staged = false, result<void>{};
    // rename(2) replaces a file or an empty folder; a full folder is exchanged, which is atomic as well.
    if (!is_directory || (errno != ENOTEMPTY && errno != EEXIST))
      return fail_sys(errno, "cannot rename into place", destination.string());
    if (::syscall(SYS_renameat2, AT_FDCWD, staging.c_str(), AT_FDCWD, destination.c_str(), RENAME_EXCHANGE) != 0)
      return fail_sys(errno, "cannot exchange with the existing folder (does the file system support it?)",
                      destination.string());
    return {};  // `staging` is now the old one; it goes when the new name is durable
  }
};

staged_output::staged_output(std::unique_ptr<state> made) : state_(std::move(made)) {}
staged_output::staged_output(staged_output&&) noexcept = default;
staged_output& staged_output::operator=(staged_output&&) noexcept = default;

staged_output::~staged_output() {
  if (!state_) return;
  state_->close_all();
  if (state_->staged) state_->discard();
}

result<staged_output> staged_output::file(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  std::error_code code;
  made->destination = resolved(destination, code);
  made->options = options;
  if (code || made->destination.filename().empty())
    return fail(errc::invalid_argument, "is not a file name").with_file(destination.string());
  const fs::file_status status = fs::symlink_status(made->destination, code);
  if (fs::is_directory(status)) return fail(errc::destination_exists, "is a folder").with_file(destination.string());
  if (fs::exists(status) && !options.overwrite)
    return fail(errc::destination_exists, "exists already")
        .with_file(destination.string())
        .with_hint("--force replaces it");
  if (!fs::is_directory(made->destination.parent_path(), code))
    return fail(errc::invalid_argument, "its folder does not exist").with_file(destination.string());
  made->staging = made->destination.parent_path() / temporary_name(made->destination);
  return staged_output(std::move(made));
}

result<staged_output> staged_output::directory(const fs::path& destination, output_options options) {
  auto made = std::make_unique<state>();
  std::error_code code;
  made->destination = resolved(destination, code);
  if (!code && made->destination.filename().empty()) made->destination = made->destination.parent_path();
  made->options = options;
  made->is_directory = true;
  if (code || made->destination.filename().empty())
    return fail(errc::invalid_argument, "is not a folder name").with_file(destination.string());
  const fs::file_status status = fs::symlink_status(made->destination, code);
  if (fs::exists(status) && !fs::is_directory(status))
    return fail(errc::destination_exists, "is a file, and a folder is to be written").with_file(destination.string());
  if (fs::exists(status) && !fs::is_empty(made->destination, code)) {
    if (!options.overwrite)
      return fail(errc::destination_exists, "exists already")
          .with_file(destination.string())
          .with_hint("--force replaces it");
    SHARDMESH_CHECK(check_replaceable(made->destination));
  }
  if (!fs::is_directory(made->destination.parent_path(), code))
    return fail(errc::invalid_argument, "its parent folder does not exist").with_file(destination.string());
  made->staging = made->destination.parent_path() / temporary_name(made->destination);
  if (::mkdir(made->staging.c_str(), 0777) != 0) return fail_sys(errno, "cannot create", made->staging.string());
  made->staged = true;
  return staged_output(std::move(made));
}

result<staged_output> staged_output::join(const fs::path& folder, output_options options) {
  auto made = std::make_unique<state>();
  std::error_code code;
  if (!fs::is_directory(folder, code))
    return fail_sys(code ? code.value() : ENOENT, "does not see the folder of the save", folder.string());
  made->staging = folder;
  made->destination = folder;  // for messages
  made->options = options;
  made->is_directory = made->staged = true;
  return staged_output(std::move(made));
}

const fs::path& staged_output::folder() const {
  return state_->staging;
}

void staged_output::release() {
  state_->staged = false;
}

result<std::int32_t> staged_output::add_file(std::string_view name) {
  const auto number = static_cast<std::int32_t>(state_->names.size());
  state_->names.emplace_back(name);
  const fs::path path = state_->path_of(number);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fail_sys(errno, "cannot create", path.string());
  ::close(fd);
  state_->staged = true;
  return number;
}

result<void> staged_output::write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes) {
  SHARDMESH_TRY(const auto entry, state_->acquire(file));
  const auto size = static_cast<std::int64_t>(bytes.size());
  result<void> done;
  while (!bytes.empty() && done) {
    const ssize_t put = ::pwrite(entry->fd, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      done = fail_sys(errno, "cannot write", state_->destination.string());
    } else {
      bytes = bytes.subspan(static_cast<std::size_t>(put));
      offset += put;
    }
  }
  if (done) state_->write_early(entry, size);
  state_->release(entry);
  return done;
}

result<void> staged_output::read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const {
  SHARDMESH_TRY(const auto entry, state_->acquire(file));
  result<void> done;
  while (!bytes.empty() && done) {
    const ssize_t got = ::pread(entry->fd, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      done = fail_sys(got < 0 ? errno : EIO, "cannot read back", state_->destination.string());
    } else {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
  }
  state_->release(entry);
  return done;
}

result<void> staged_output::remove_file(std::int32_t file) {
  state_->close_all();
  const fs::path path = state_->path_of(file);
  if (::unlink(path.c_str()) != 0) return fail_sys(errno, "cannot remove", path.string());
  state_->removed.insert(file);
  return {};
}

result<void> staged_output::prepare() {
  state_->close_all();
  if (!state_->options.durable) return {};
  for (; state_->synced < state_->names.size(); ++state_->synced)
    if (const auto file = static_cast<std::int32_t>(state_->synced); !state_->removed.contains(file)) {
      SHARDMESH_CHECK(sync_path(state_->path_of(file), false));
    }
  return state_->is_directory ? sync_path(state_->staging, true) : result<void>{};
}

result<void> staged_output::commit() {
  SHARDMESH_CHECK(prepare());
  SHARDMESH_CHECK(state_->rename_into_place());
  if (!state_->options.durable) return {};
  auto synced = sync_path(state_->destination.parent_path(), true);
  if (!synced && state_->staged) {
    // The exchange took place but may not be durable: go back to the old one rather than delete it.
    ::syscall(SYS_renameat2, AT_FDCWD, state_->staging.c_str(), AT_FDCWD, state_->destination.c_str(), RENAME_EXCHANGE);
  }
  return synced;
}

result<void> check_not_inside(const fs::path& destination, const fs::path& source) {
  std::error_code code;
  const fs::path inner = resolved(destination, code);
  const fs::path outer = resolved(source, code);
  const auto [end, rest] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (end == outer.end() || (std::next(end) == outer.end() && end->empty()))
    return fail(errc::invalid_argument, "the destination is the source or lies inside of it")
        .with_file(destination.string())
        .with_values("", source.string());
  return {};
}

}  // namespace shardmesh
