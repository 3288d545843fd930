// SPDX-License-Identifier: Apache-2.0
// The names of the parts of a folder, and of all other entries.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :gathered_parts;
import :part_gatherer;

namespace shardmesh {
namespace {

// The first names, and the number of the others.
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t most = 50;
  std::sort(names.begin(), names.end());
  const std::size_t more = names.size() - std::min(names.size(), most);
  names.resize(names.size() - more);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

}  // namespace

void part_gatherer::finish_names() {
  std::vector<checkpoint_part> parts;
  for (gathered_part& one : found_.parts) parts.push_back(std::move(one.part));
  make_names_unique(parts);
  for (std::size_t i = 0; i < parts.size(); ++i) found_.parts[i].part = std::move(parts[i]);
  std::sort(found_.parts.begin(), found_.parts.end(),
            [](const gathered_part& a, const gathered_part& b) { return a.part.name < b.part.name; });
}

void part_gatherer::name_the_rest() {
  const auto warn = [&](const std::vector<std::string>& names, std::string_view message) {
    if (names.empty()) return;
    found_.warnings.push_back(fail(errc::unsupported, fmt::format("{} {}: {}", names.size(), message, listed(names)))
                                  .with_file(top_.string()));
  };
  warn(copies_, copies_.size() == 1 ? "file is a copy of the model and is skipped"
                                    : "files are copies of the model and are skipped");
  warn(unknown_, unknown_.size() == 1 ? "entry is not a readable checkpoint and is skipped"
                                      : "entries are not readable checkpoints and are skipped");
  if (!followed_.empty())
    found_.notes.push_back("links to files and folders that are read once, under their own names: " +
                           listed(followed_));
  if (!beside_.empty()) found_.beside = "skipped, as files of these kinds hold no tensors: " + listed(beside_);
}

}  // namespace shardmesh
