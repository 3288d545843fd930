// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
module shardmesh.storage;

namespace shardmesh {
namespace {

constexpr std::int64_t limit_bytes = std::int64_t{4} << 30;

}  // namespace

std::set<std::string> recorded_files(const std::filesystem::path& folder) {
  std::set<std::string> names{std::string(checksum_file_name)};
  const auto bytes = read_file(folder / checksum_file_name, limit_bytes);
  if (!bytes) return {};
  const auto ranges = parse_checksums({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!ranges) return {};
  for (const checksum_range& range : *ranges) names.insert(range.file);
  return names;
}

error holds_more(const std::filesystem::path& folder, const std::string& entry) {
  return fail(errc::destination_exists, "the folder holds more than the files of one checkpoint and is not replaced")
      .with_file(folder.string())
      .with_values("", entry)
      .with_hint("choose another destination or remove it yourself");
}

namespace {

result<void> holds_recorded_files(const std::filesystem::path& folder, const destination_snapshot& seen) {
  const auto recorded = recorded_files(folder);
  for (const auto& [name, identity] : seen.entries)
    if ((identity.kind != S_IFREG && identity.kind != S_IFLNK) || !recorded.contains(name))
      return holds_more(folder, name);
  return {};
}

}  // namespace

result<void> check_replaceable(const folder_rule& rule, const std::filesystem::path& folder,
                               const destination_snapshot& seen) {
  return rule ? rule(folder, seen) : holds_recorded_files(folder, seen);
}

}  // namespace shardmesh
