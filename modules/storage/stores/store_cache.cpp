// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
module shardmesh.storage;

import :block_folder;
import :cached_object;

namespace shardmesh {
namespace {

constexpr std::int64_t least_bytes = std::int64_t{64} << 20;

using opened_folder = result<std::shared_ptr<block_folder>>;  // null: no cache

opened_folder open_folder(const store_cache_options& options) {
  if (options.folder.empty()) return std::shared_ptr<block_folder>();
  if (is_url(options.folder))
    return fail(errc::invalid_argument, "the cache's folder is a URL")
        .with_file(printable_url(options.folder.native()))
        .with_values("a local path", scheme_of(options.folder) + "://")
        .with_hint("name a local folder");
  if (options.most_bytes < least_bytes)
    return fail(errc::invalid_argument, "the limit of the cache is too small")
        .with_file(options.folder.string())
        .with_values("at least " + human_bytes(least_bytes), fmt::format("{} bytes", options.most_bytes));
  return block_folder::open(options.folder, options.most_bytes);
}

opened_folder folder_of_environment() {
  const char* const folder = std::getenv("SHARDMESH_CACHE");
  const char* const limit = std::getenv("SHARDMESH_CACHE_BYTES");
  if (folder == nullptr || *folder == '\0') return std::shared_ptr<block_folder>();
  store_cache_options options{.folder = folder};
  if (limit != nullptr && *limit != '\0') {
    const auto bytes = parse_bytes(limit);
    if (!bytes)
      return fail(errc::invalid_argument, "SHARDMESH_CACHE_BYTES is not a number of bytes")
          .with_values("a number such as 50GB", escaped(limit));
    options.most_bytes = *bytes;
  }
  auto opened = open_folder(options);
  if (!opened && opened.error().hint.empty())
    return std::move(opened).error().with_hint("change SHARDMESH_CACHE, or unset it");
  return opened;
}

struct cache_setting {
  std::mutex lock;
  std::optional<opened_folder> folder;  // nothing: not decided yet
};

// Never destroyed: a static object may still read at the end of the program.
cache_setting& setting() {
  static auto* const made = new cache_setting;
  return *made;
}

opened_folder current_folder() {
  cache_setting& now = setting();
  const std::scoped_lock guard(now.lock);
  if (!now.folder) now.folder.emplace(folder_of_environment());
  return *now.folder;
}

}  // namespace

result<void> use_store_cache(const store_cache_options& options) {
  auto opened = open_folder(options);
  if (!opened) return std::move(opened).error();
  cache_setting& now = setting();
  const std::scoped_lock guard(now.lock);
  now.folder.emplace(std::move(opened));
  return {};
}

result<std::unique_ptr<byte_source>> through_cache(std::unique_ptr<byte_source> opened, const std::string& url) {
  SHARDMESH_TRY(std::shared_ptr<block_folder> folder, current_folder());
  const std::string version = opened->version();
  if (!folder || version.empty() || opened->size_bytes() <= 0)
    return result<std::unique_ptr<byte_source>>(std::move(opened));
  // The whole URL counts, with its query. The digest shows no secret.
  const std::string identity = fmt::format("{}\n{}\n{}", url, version, opened->size_bytes());
  return std::unique_ptr<byte_source>(
      std::make_unique<cached_object>(std::move(opened), std::move(folder), xxh3(std::as_bytes(std::span(identity)))));
}

}  // namespace shardmesh
