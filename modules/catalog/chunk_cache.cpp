// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <lru_cache.hpp>
#include <try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.catalog;

namespace shardmesh {
namespace fs = std::filesystem;

folder_files::folder_files(fs::path folder, std::vector<std::string> names, file_pool pool)
    : folder_(std::move(folder)), names_(std::move(names)), pool_(std::move(pool)), opened_(names_.size()) {
  std::error_code ignored;
  real_folder_ = fs::canonical(folder_, ignored);
}

result<std::shared_ptr<const byte_source>> folder_files::open(std::int32_t file) {
  const auto at = static_cast<std::size_t>(file);
  const std::scoped_lock guard(lock_);
  if (opened_[at]) return opened_[at];
  const fs::path path = path_of(file);
  std::error_code code;
  const fs::path real = fs::canonical(path, code);
  if (code == std::errc::no_such_file_or_directory)
    return fail(errc::bad_format, "the file is missing").with_file(path.string());
  if (code) return fail_sys(code.value(), "cannot resolve", path.string());
  if (std::mismatch(real_folder_.begin(), real_folder_.end(), real.begin(), real.end()).first != real_folder_.end())
    return fail(errc::unsafe_path, "a symbolic link leads out of the checkpoint's folder").with_file(path.string());
  if (fs::is_directory(real, code)) return fail(errc::bad_format, "is a folder, not a file").with_file(path.string());
  SHARDMESH_TRY(std::unique_ptr<byte_source> source, pool_.open(path));
  opened_[at] = std::move(source);
  return opened_[at];
}

result<std::shared_ptr<const byte_source>> folder_files::section(std::int32_t file, std::int64_t offset,
                                                                 std::int64_t length) {
  SHARDMESH_TRY(const auto whole, open(file));
  if (offset > whole->size_bytes() || length > whole->size_bytes() - offset)
    return fail(errc::out_of_bounds, "an item lies outside of its file")
        .with_file(whole->name())
        .with_values(fmt::format("{} bytes", offset + length), fmt::format("{}", whole->size_bytes()));
  return std::shared_ptr<const byte_source>(std::make_shared<shared_section>(whole, offset, length));
}

result<void> check_inside(const fs::path& folder, const std::string& file) {
  SHARDMESH_CHECK(folder_files(folder, {file}, file_pool(1)).open(0));
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
