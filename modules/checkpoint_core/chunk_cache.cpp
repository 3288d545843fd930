// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <lru_cache.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

namespace shardmesh {
namespace fs = places;
namespace {

// Stands in for a file that cannot be opened, so that each of its chunks gets the same error without a system call. The
// error expires, because the file may appear while the reader lives.
class refused_file final : public byte_source {
 public:
  explicit refused_file(error why) : why_(std::move(why)) {}
  std::int64_t size_bytes() const override { return 0; }
  std::string name() const override { return why_.file; }
  result<void> read(std::int64_t, std::span<std::byte>) const override { return why_; }
  const error& why() const { return why_; }
  bool is_old() const { return std::chrono::steady_clock::now() - since_ > std::chrono::seconds(1); }

 private:
  error why_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

// True for a relative name without "." and "..": none of its steps leaves the folder.
bool is_plain_name(const fs::path& name) {
  return !name.empty() && !name.has_root_path() && !is_url(name) &&
         std::none_of(name.begin(), name.end(),
                      [](const fs::path& step) { return step.empty() || step == "." || step == ".."; });
}

// True when plain names lead from the folder to a file, without links or "..". Such a file lies in the folder, and
// nothing needs to be resolved. A store has no links: no request is needed.
bool is_plainly_inside(const fs::path& folder, const fs::path& name) {
  if (!is_plain_name(name)) return false;
  if (is_url(folder)) return true;
  fs::path at = folder;
  fs::file_type type = fs::file_type::none;
  for (const fs::path& step : name) {
    std::error_code code;
    type = fs::symlink_status(at /= step, code).type();
    if (code || (type != fs::file_type::directory && type != fs::file_type::regular)) return false;
  }
  return type == fs::file_type::regular;
}

// Opens the path through its links, and refuses links that lead out of the folder.
result<std::unique_ptr<byte_source>> open_linked(const fs::path& path, const fs::path& real_folder, file_pool& pool) {
  std::error_code code;
  const fs::path real = fs::canonical(path, code);
  if (code == std::errc::no_such_file_or_directory)
    return fail(errc::bad_format, "the file is missing").with_file(path.string());
  if (code) return fs::failure(code, "cannot resolve", path);
  if (std::mismatch(real_folder.begin(), real_folder.end(), real.begin(), real.end()).first != real_folder.end())
    return fail(errc::unsafe_path, "a symbolic link leads out of the checkpoint's folder").with_file(path.string());
  if (fs::is_directory(real, code)) return fail(errc::bad_format, "is a folder, not a file").with_file(path.string());
  return pool.open(path);
}

result<std::unique_ptr<byte_source>> open_inside(const fs::path& folder, const std::string& name,
                                                 const fs::path& real_folder, file_pool& pool) {
  if (is_plainly_inside(folder, name)) {
    SHARDMESH_TRY(detail::check_name_in(folder, name));
    return pool.open(folder / name);
  }
  // A file system resolves "..", and open_linked judges the outcome. A store does not, and no file of a local
  // checkpoint is at a URL.
  if (is_url(folder) || is_url(name))
    return fail(errc::unsafe_path, "a file name leaves the checkpoint's folder")
        .with_file(folder.string())
        .with_values("a name in the folder", name);
  return open_linked(folder / name, real_folder, pool);
}

}  // namespace

folder_files::folder_files(fs::path folder, std::vector<std::string> names, file_pool pool, file_scope scope)
    : folder_(std::move(folder)),
      names_(std::move(names)),
      pool_(std::move(pool)),
      scope_(scope),
      opened_(names_.size()),
      identity_(identity_of(folder_)) {
  std::error_code ignored;
  real_folder_ = fs::canonical(folder_, ignored);
}

std::optional<folder_files::folder_identity> folder_files::identity_of(const std::filesystem::path& folder) {
  struct stat status{};
  if (is_url(folder) || ::stat(folder.c_str(), &status) != 0) return std::nullopt;
  return folder_identity{static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
                         static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000U +
                             static_cast<std::uint64_t>(status.st_mtim.tv_nsec)};
}

// Called after a file was opened. An overwrite exchanges the folder for another one, and a link such as "latest" may
// lead to another one. A reader that relies on the old description would then return a mixture of two checkpoints. One
// system call for each file would be noticed where a file holds one tensor, so files opened within a millisecond share
// it.
result<void> folder_files::check_same_folder() {
  constexpr std::chrono::milliseconds shared(1);
  if (!identity_) return {};
  const auto now = std::chrono::steady_clock::now();
  {
    const std::scoped_lock guard(lock_);
    if (now - checked_ < shared) return {};
  }
  const auto there = identity_of(folder_);
  if (there && !there->is_same_as(*identity_))
    return fail(errc::io, "the checkpoint was replaced after it was opened")
        .with_file(folder_.string())
        .with_hint("open it again");
  const std::scoped_lock guard(lock_);
  checked_ = now;
  return {};
}

result<std::unique_ptr<byte_source>> folder_files::open_file(std::int32_t file) {
  const std::string& name = names_[static_cast<std::size_t>(file)];
  const auto sibling = scope_ == file_scope::sibling_folders ? parse_sibling_file(name) : std::nullopt;
  if (!sibling) return open_inside(folder_, name, real_folder_, pool_);
  SHARDMESH_TRY(check_sibling(folder_, *sibling));
  return pool_.open(path_of(file));
}

void folder_files::provide(std::vector<std::shared_ptr<const byte_source>> sources) {
  opened_ = std::move(sources);
  is_provided_ = true;
}

std::optional<result<std::shared_ptr<const byte_source>>> folder_files::known(std::int32_t file) {
  using opened = result<std::shared_ptr<const byte_source>>;
  const std::scoped_lock guard(lock_);
  const std::shared_ptr<const byte_source>& found = opened_[static_cast<std::size_t>(file)];
  if (const auto* const refused = dynamic_cast<const refused_file*>(found.get())) {
    if (refused->is_old()) return std::nullopt;
    return opened(refused->why());
  }
  if (found) return opened(found);
  if (!is_provided_) return std::nullopt;
  return opened(fail(errc::bad_format, "the file is missing").with_file(path_of(file).string()));
}

result<std::shared_ptr<const byte_source>> folder_files::open(std::int32_t file) {
  if (auto done = known(file)) return *std::move(done);
  const auto at = static_cast<std::size_t>(file);
  SHARDMESH_TRY(const auto held, opening_[at % opening_.size()].acquire());
  if (auto done = known(file)) return *std::move(done);  // another thread has opened it meanwhile
  auto found = open_file(file);
  SHARDMESH_TRY(check_same_folder());
  if (!found) {
    error why = std::move(found).error();
    if (detail::is_limit_error(why)) return why;  // of this call, not of the file
    if (is_url(folder_) && why.sys == ENOENT)     // a defect of the data
      why = fail(errc::bad_format, "the file is missing").with_file(why.file);
    const std::scoped_lock guard(lock_);
    opened_[at] = std::make_shared<refused_file>(why);
    return why;
  }
  const std::scoped_lock guard(lock_);
  opened_[at] = *std::move(found);
  return opened_[at];
}

result<std::shared_ptr<const byte_source>> folder_files::section(std::int32_t file, std::int64_t offset,
                                                                 std::int64_t length) {
  SHARDMESH_TRY(const auto whole, open(file));
  if (offset > whole->size_bytes() || length > whole->size_bytes() - offset)
    return fail(errc::out_of_bounds, "an item lies outside of its file")
        .with_file(whole->name())
        .with_values(fmt::format("{} bytes from byte {} on", length, offset), fmt::format("{}", whole->size_bytes()));
  return std::shared_ptr<const byte_source>(std::make_shared<shared_section>(whole, offset, length));
}

result<void> check_inside(const fs::path& folder, const std::string& file) {
  if (is_plainly_inside(folder, file)) return detail::check_name_in(folder, file);
  SHARDMESH_TRY(folder_files(folder, {file}, file_pool(1)).open(0));
  return {};
}

struct chunk_cache::state {
  static constexpr std::size_t most = 4096;
  std::mutex lock;
  detail::lru_cache<std::int32_t, entry> recent{most};
};

chunk_cache::chunk_cache() : state_(std::make_unique<state>()) {}
chunk_cache::~chunk_cache() = default;

chunk_cache::entry chunk_cache::find(std::int32_t chunk) {
  const std::scoped_lock guard(state_->lock);
  const entry* known = state_->recent.find(chunk);
  return known ? *known : nullptr;
}

void chunk_cache::insert(std::int32_t chunk, entry opened) {
  const std::scoped_lock guard(state_->lock);
  state_->recent.insert(chunk, std::move(opened));
}

}  // namespace shardmesh
