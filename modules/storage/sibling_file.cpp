// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <sys/stat.h>
#include <shardmesh/try.hpp>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.storage;

import :sibling_file;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// A name of one entry of a folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

result<void> check_step(const fs::path& path, bool is_folder) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return fail_sys(errno, "cannot stat", path.string());
    return fail(errc::bad_format,
                fmt::format("the {} is missing, and the checkpoint refers to its bytes", is_folder ? "folder" : "file"))
        .with_file(path.string())
        .with_hint("restore it, or load an earlier checkpoint");
  }
  if (S_ISLNK(status.st_mode))
    return fail(errc::unsafe_path, "is a symbolic link, and references to another folder follow no links")
        .with_file(path.string())
        .with_hint("replace the link with what it names");
  if (is_folder ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode)) return {};
  return fail(errc::bad_format, is_folder ? "is not a folder" : "is not a file").with_file(path.string());
}

}  // namespace

std::optional<sibling_file> parse_sibling_file(std::string_view reference) {
  constexpr std::string_view up = "../", suffix = ".distcp";
  if (!reference.starts_with(up)) return std::nullopt;
  reference.remove_prefix(up.size());
  const std::size_t slash = reference.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view folder = reference.substr(0, slash), file = reference.substr(slash + 1);
  if (!is_plain_name(folder) || !is_plain_name(file) || !file.ends_with(suffix)) return std::nullopt;
  return sibling_file{std::string(folder), std::string(file)};
}

std::string to_string(const sibling_file& sibling) {
  return fmt::format("../{}/{}", sibling.folder, sibling.file);
}

result<void> check_sibling(const fs::path& folder, const sibling_file& sibling) {
  if (is_url(folder))
    return fail(errc::unsupported, "refers to a file of another folder, which is read only from a local path")
        .with_file(folder.string())
        .with_values("", to_string(sibling))
        .with_hint(fmt::format("copy it and {} into one local folder, and open the copy", sibling.folder));
  std::error_code code;
  const fs::path real = fs::canonical(folder.empty() ? fs::path(".") : folder, code);
  if (code) return fail_sys(code.value(), "cannot resolve", folder.string());
  const fs::path beside = real.parent_path() / sibling.folder;
  SHARDMESH_TRY(check_step(beside, true));
  return check_step(beside / sibling.file, false);
}

}  // namespace shardmesh
