// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.storage;

import :answers;
import :listed_versions;

namespace shardmesh {
namespace {

// A pool that serves many checkpoints forgets the lists of earlier ones. One without lists remembers this many objects.
constexpr std::size_t most_folders = 4096, most_opened = 10'000;

const stored_object* object_in(const std::vector<stored_object>& names, const std::string& name) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const stored_object& one) { return one.name == name; });
  return found != names.end() && !found->is_folder ? &*found : nullptr;
}

}  // namespace

std::optional<listed_versions::difference> listed_versions::difference_of(const std::string& url,
                                                                          const std::string& version) {
  const std::size_t slash = url.rfind('/');
  if (version.empty() || has_query(url) || slash < url.find("://") + 3) return std::nullopt;
  std::string inside = url.substr(0, slash);
  const std::scoped_lock guard(lock_);
  if (!has_lists_ && opened_.size() < most_opened) opened_.insert_or_assign(url, version);
  const auto found = folders_.find(inside);
  if (found == folders_.end() || !found->second.spells_alike) return std::nullopt;
  std::string name = url.substr(slash + 1);
  const auto& names = *found->second.names;
  // Ascending by name.
  const auto at = std::lower_bound(names.begin(), names.end(), name,
                                   [](const stored_object& one, const std::string& text) { return one.name < text; });
  if (at == names.end() || at->name != name || at->is_folder || at->version.empty() || at->version == version)
    return std::nullopt;
  return difference{std::move(inside), std::move(name), at->version};
}

result<void> listed_versions::check(const std::string& url, const std::string& version) {
  const auto differs = difference_of(url, version);
  if (!differs) return {};
  SHARDMESH_TRY(const std::shared_ptr<const store> handler, store_of(differs->folder));
  SHARDMESH_TRY(const std::vector<stored_object> listed, handler->list(differs->folder));
  const stored_object* const now = object_in(listed, differs->name);
  if (now == nullptr || now->version != differs->listed)
    return fail(errc::io, "the object has changed since the checkpoint was opened")
        .with_file(printable_url(url))
        .with_values("version " + differs->listed, version)
        .with_hint("open the checkpoint again");
  const std::scoped_lock guard(lock_);
  if (const auto found = folders_.find(differs->folder); found != folders_.end()) found->second.spells_alike = false;
  return {};
}

result<void> listed_versions::keep_lists() {
  std::map<std::string, std::string> opened;
  {
    const std::scoped_lock guard(lock_);
    if (folders_.size() > most_folders) folders_.clear();
    for (auto& [url, names] : complete_lists()) folders_.insert_or_assign(url, folder{std::move(names)});
    opened = std::exchange(opened_, {});
    has_lists_ = true;
  }
  for (const auto& [url, version] : opened) SHARDMESH_TRY(check(url, version));
  return {};
}

}  // namespace shardmesh
