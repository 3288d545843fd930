// SPDX-License-Identifier: Apache-2.0
module;
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// The absolute path, with symbolic links resolved as far as the path exists, and no "/" at the end.
fs::path resolved(const fs::path& path) {
  std::error_code code;
  if (is_url(path)) {
    fs::path whole = places::canonical(path, code);
    return code ? path : whole;
  }
  const fs::path absolute = fs::absolute(path, code);
  fs::path whole = code ? path : fs::weakly_canonical(absolute, code);
  if (code) whole = absolute.lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

bool is_within(const fs::path& inner, const fs::path& outer) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

result<void> check_given(const fs::path& destination) {
  if (destination.empty()) return fail(errc::invalid_argument, "the destination is an empty path").with_file("''");
  return {};
}

// Everything that a write to a destination may replace.
class replaced_things {
 public:
  explicit replaced_things(const fs::path& destination) : asked_(destination) {
    add(resolved(destination));
    if (destination.has_extension()) add(resolved(objects_beside(destination)));
  }

  result<void> check(const fs::path& file) const {
    SHARDMESH_TRY(check_given(asked_));
    const fs::path whole = resolved(file);
    struct stat status{};
    bool is_held =
        !is_url(file) && ::stat(file.c_str(), &status) == 0 && things_.contains({status.st_dev, status.st_ino});
    for (const fs::path& path : paths_) is_held |= is_within(whole, path);
    if (!is_held) return {};
    return fail(errc::invalid_argument, "the source is the destination or lies inside of it, and would be replaced")
        .with_file(asked_.string())
        .with_values("", printable_url(file.string()))
        .with_hint("write to another place");
  }

 private:
  void add(fs::path path) {
    if (is_url(path)) return paths_.push_back(std::move(path));
    if (const auto seen = look_at(path); seen && seen->self) {
      things_.insert({seen->self->device, seen->self->inode});
      for (const auto& [name, identity] : seen->entries) things_.insert({identity.device, identity.inode});
    }
    paths_.push_back(std::move(path));
  }

  const fs::path& asked_;
  std::vector<fs::path> paths_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> things_;  // device, inode
};

}  // namespace

result<void> check_not_inside(const fs::path& destination, const fs::path& source) {
  if (is_within(resolved(destination), resolved(source)))
    return fail(errc::invalid_argument, "the destination is the source or lies inside of it")
        .with_file(destination.string())
        .with_values("", printable_url(source.string()));
  return {};
}

result<void> check_disjoint(const fs::path& destination, const fs::path& file) {
  SHARDMESH_TRY(check_not_inside(destination, file));
  return replaced_things(destination).check(file);
}

result<void> check_disjoint(const fs::path& destination, const checkpoint_reader& source) {
  if (source.path().empty()) return check_given(destination);  // the source lies in memory
  SHARDMESH_TRY(check_not_inside(destination, source.path()));
  const replaced_things replaced(destination);
  SHARDMESH_TRY(replaced.check(source.path()));
  if (is_url(source.path()) != is_url(destination)) return {};
  SHARDMESH_TRY(const places::file_status of_path, places::checked_status(source.path()));
  const fs::path folder = places::is_directory(of_path) ? source.path() : places::folder_of(source.path());
  for (const std::string& file : source.contents().files) SHARDMESH_TRY(replaced.check(folder / file));
  return {};
}

}  // namespace shardmesh
