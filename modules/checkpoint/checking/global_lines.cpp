// SPDX-License-Identifier: Apache-2.0
// Messages of `verify` and other commands about the names that `find_globals` found. Finding them is in pickle_globals.
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.storage;
import :file_content;

namespace shardmesh {
namespace fs = places;
namespace {

// Text in angle brackets is not a name; it describes a finding.
error line_of(const named_global& name, const fs::path& folder) {
  constexpr std::string_view looks_up = "Python would look it up, and may call it, when the file is loaded";
  std::string message = fmt::format("its pickle names {}, which is not plain data", name.name);
  std::string_view hint = looks_up;
  if (is_packed_name(name.name)) {
    message = fmt::format("it is {}, which is not searched: the names in its pickles are unknown",
                          std::string_view(name.name).substr(1, name.name.size() - 2));
    hint = "unpack it and verify its contents";
  } else if (name.dangerous && name.name.starts_with("<archive")) {
    message = fmt::format("it holds {}: the names in its pickles are unknown",
                          std::string_view(name.name).substr(1, name.name.size() - 2));
    hint = "Python may still read it, and look up the names in it";
  } else if (name.dangerous && !name.name.starts_with("<unreadable ")) {
    message = fmt::format("its pickle names {}, which is dangerous to load", name.name);
    hint = "pass allow_globals to accept the name, if you trust the file";
  } else if (name.name == "<unreadable archive>" || name.name == "<unreadable record>" ||
             name.name == "<unreadable file>") {
    message = "it cannot be read: the names in its pickles are unknown";
    hint = "Python may still read it, and look up the names in it";
  } else if (name.name.starts_with("<unreadable from")) {
    message = fmt::format("its pickle is {}: the names after that are unknown",
                          std::string_view(name.name).substr(1, name.name.size() - 2));
    hint = "Python runs a damaged pickle up to its defect";
  } else if (name.name == "<bytes after the end>" || name.name == "<another pickle after the end>") {
    message = fmt::format("its pickle has {}", std::string_view(name.name).substr(1, name.name.size() - 2));
    hint = "programs that continue to read would load them";
  }
  return fail(errc::unsupported, std::move(message))
      .with_file((folder / name.file).string())
      .with_key(name.key)
      .with_hint(hint);
}

std::vector<error> lines_of(const global_report& report, const fs::path& path, bool dangerous,
                            std::span<const std::string> allowed, std::int64_t more) {
  constexpr std::size_t max_lines = 100;
  std::error_code code;
  const fs::path folder = fs::is_directory(path, code) ? path : fs::folder_of(path);
  std::vector<error> lines;
  for (const named_global& name : report.names) {
    if (name.harmless || name.dangerous != dangerous || std::ranges::find(allowed, name.name) != allowed.end())
      continue;
    if (lines.size() < max_lines)
      lines.push_back(line_of(name, folder));
    else
      ++more;
  }
  if (more > 0)
    lines.push_back(
        fail(errc::unsupported, fmt::format("{} {}", detail::counted(more, "more name is", "more names are"),
                                            dangerous ? "dangerous" : "not plain data"))
            .with_file(path.string()));
  return lines;
}

}  // namespace

std::vector<error> warnings_of(const global_report& report, const fs::path& path,
                               std::span<const std::string> allowed) {
  std::vector<error> warnings = report.warnings;
  if (report.more_warnings > 0)
    warnings.push_back(
        fail(errc::bad_format, fmt::format("torch.load refuses {}", detail::counted(report.more_warnings, "more item")))
            .with_file(path.string()));
  std::ranges::move(lines_of(report, path, false, allowed, report.unnamed), std::back_inserter(warnings));
  return warnings;
}

std::vector<error> dangers_of(const global_report& report, const fs::path& path, std::span<const std::string> allowed) {
  return lines_of(report, path, true, allowed, 0);
}

global_counts count_globals(const global_report& report, std::span<const std::string> allowed) {
  std::set<std::string_view> dangerous, unknown;
  for (const named_global& name : report.names)
    if (!name.harmless && std::ranges::find(allowed, name.name) == allowed.end())
      (name.dangerous ? dangerous : unknown).insert(name.name);
  return {{dangerous.begin(), dangerous.end()}, static_cast<std::int64_t>(unknown.size()) + report.unnamed};
}

}  // namespace shardmesh
