// SPDX-License-Identifier: Apache-2.0
// Links in a folder that is searched for checkpoints.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :folder_survey;
import :folders;
import :part_gatherer;

namespace shardmesh {
namespace fs = places;
namespace {

int depth_of(const std::string& name) {
  return static_cast<int>(std::count(name.begin(), name.end(), '/'));
}

}  // namespace

std::string part_gatherer::target_of(const std::string& name) const {
  const link_end leads_to = follow_link(top_ / name, real_top_);
  return leads_to.is_inside ? leads_to.real.lexically_relative(real_top_).string() : name;
}

void part_gatherer::claim(const std::string& name) {
  claimed_.insert(name);
  claimed_.insert(target_of(name));
}

bool part_gatherer::refuse_links(const std::string& folder, const checkpoint_part& part) {
  bool is_refused = false;
  std::error_code code;
  for (fs::directory_iterator at(path_of(folder), code), end; !code && at != end; at.increment(code)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (!at->is_symlink(ignored) || !is_name_of(part, name)) continue;
    const link_end leads_to = follow_link(at->path(), real_top_);
    if (leads_to.is_inside || leads_to.real.empty()) continue;  // the reader reports a missing target
    refuse_link(folder + name);
    is_refused = true;
  }
  return is_refused;
}

void part_gatherer::refuse_link(const std::string& name) {
  claimed_.insert(name);
  found_.problems.push_back(fail(errc::unsafe_path, "a symbolic link leads out of the folder")
                                .with_file((top_ / name).string())
                                .with_hint("open the folder's parts by their names, or replace the link by the file"));
}

void part_gatherer::follow_links() {
  while (!links_.empty()) {
    std::vector<std::string> links = std::exchange(links_, {});
    std::sort(links.begin(), links.end());
    for (const std::string& name : links) follow(name);
  }
}

void part_gatherer::follow(const std::string& name) {
  const fs::path at = top_ / name;
  const link_end leads_to = follow_link(at, real_top_);
  const std::string file = at.filename().string();
  std::error_code code;
  const bool is_folder = fs::is_directory(leads_to.real, code);
  if (leads_to.real.empty()) return broken(name);
  if (!leads_to.is_inside) {
    const auto format = is_folder ? format_of_folder(leads_to.real) : std::optional<checkpoint_format>();
    const bool may_hold_tensors = is_folder ? format && *format : is_weight_name(file);
    if (may_hold_tensors) return refuse_link(name);
    return unknown_.push_back(name + " (a link that leads elsewhere)");
  }
  const std::string target = leads_to.real.lexically_relative(real_top_).string();
  if (visited_.contains(leads_to.real.string()) || is_claimed(target) || (is_folder && holds_claimed(target + "/")))
    return followed_.push_back(fmt::format("{} ({})", name, target));
  if (is_folder) return look_below(name + "/", depth_of(name));
  if (!fs::is_regular_file(leads_to.real, code)) return unknown_.push_back(name + " (not a regular file)");
  if (!is_weight_name(file) && nameless_.contains(target))
    return followed_.push_back(fmt::format("{} ({})", name, target));
  if (!is_weight_name(file) && std::find(unknown_.begin(), unknown_.end(), target) == unknown_.end())
    return beside_.push_back(name);
  visited_.insert(leads_to.real.string());
  const std::size_t parts = found_.parts.size();
  take_file(folder_of(name), file, {});
  if (found_.parts.size() > parts) std::erase(unknown_, target);
}

void part_gatherer::broken(const std::string& name) {
  if (!is_weight_name(name)) return unknown_.push_back(name + " (a link that leads to nothing)");
  found_.problems.push_back(
      fail(errc::bad_format, "a symbolic link leads to nothing").with_file((top_ / name).string()));
}

}  // namespace shardmesh
