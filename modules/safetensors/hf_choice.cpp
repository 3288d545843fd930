// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :hf_choice;
import :hf_copies;

namespace shardmesh::safetensors {
namespace {

namespace fs = places;

bool ends_with_index(std::string_view name) {
  return name.ends_with(".safetensors.index.json");
}

// A folder's safetensors files in name order, and its index files. Copying tools leave dot files behind; those are
// skipped.
struct listing {
  std::vector<std::string> files, indices;
};
result<listing> list_folder(const fs::path& folder) {
  listing found;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) continue;
    if (name.ends_with(".safetensors")) found.files.push_back(name);
    if (ends_with_index(name)) found.indices.push_back(name);
  }
  if (problem) return fs::failure(problem, "cannot list", folder);
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.indices.begin(), found.indices.end());
  return found;
}

// An index beside the whole model, even an unreadable one, belongs to another save. Transformers also prefers the whole
// model.
void prefer_whole_model(hf_choice& chosen, file_pool& pool) {
  const std::string whole = "model.safetensors";
  const auto is_whole = [&](const std::string& name) { return name == whole; };
  if (chosen.index_name != hf_index_name || std::none_of(chosen.files.begin(), chosen.files.end(), is_whole)) return;
  std::unordered_set<std::string> named;
  if (const auto source = pool.open(chosen.folder / chosen.index_name)) {
    if (const auto index = parse_hf_index(**source)) {
      for (const auto& [name, file] : index->weight_map) named.insert(file);
      if (std::all_of(named.begin(), named.end(), is_whole)) return;  // the index describes the whole model
    }
  }
  chosen.set_aside.push_back(std::exchange(chosen.index_name, {}));
  const auto is_other = [&](const std::string& name) {
    return !is_whole(name) && (named.contains(name) || (is_part(name) && hf_stem_of(name) == hf_stem_of(whole)));
  };
  std::copy_if(chosen.files.begin(), chosen.files.end(), std::back_inserter(chosen.set_aside), is_other);
  std::erase_if(chosen.files, is_other);
}

}  // namespace

std::filesystem::path hf_choice::path_of(const std::string& name) const {
  return single.empty() ? folder / name : single;
}

result<hf_choice> choose_files(const fs::path& path, file_pool& pool) {
  std::error_code ignored;
  hf_choice chosen;
  chosen.folder = path;
  if (!fs::is_directory(path, ignored)) {
    const std::string name = fs::name_of(path).string();
    chosen.folder = fs::folder_of(path);
    if (!ends_with_index(name)) {
      chosen.files.push_back(name);
      chosen.single = path;
      return chosen;
    }
    chosen.index_name = name;
  } else {
    SHARDMESH_TRY(listing found, list_folder(path));
    chosen.files = std::move(found.files);
    if (std::find(found.indices.begin(), found.indices.end(), hf_index_name) != found.indices.end())
      chosen.index_name = hf_index_name;
    else if (found.indices.size() == 1)
      chosen.index_name = found.indices.front();
    else if (found.indices.size() > 1)
      return fail(errc::bad_format, fmt::format("has several indices, {} and {}", found.indices[0], found.indices[1]))
          .with_file(path.string());
    prefer_whole_model(chosen, pool);
  }
  if (!chosen.index_name.empty()) {
    SHARDMESH_TRY(const auto source, pool.open(chosen.folder / chosen.index_name));
    SHARDMESH_TRY(chosen.index, parse_hf_index(*source));
    chosen.files = chosen.index->weight_map | ranges::views::values | ranges::to<std::vector>() |
                   ranges::actions::sort | ranges::actions::unique;
  } else if (chosen.files.empty()) {
    return fail(errc::bad_format, "has no safetensors file").with_file(path.string());
  }
  return chosen;
}

result<void> check_not_empty(const hf_choice& chosen, file_pool& pool) {
  if (!chosen.index || !chosen.index->weight_map.empty()) return {};
  SHARDMESH_TRY(const listing found, list_folder(chosen.folder));
  for (const std::string& name : found.files) {
    SHARDMESH_TRY(const auto source, pool.open(chosen.folder / name));
    SHARDMESH_TRY(const safetensors::header header, parse_header(*source));
    if (!header.entries.empty())
      return fail(errc::bad_format, "the index names no tensor, but files beside it have some")
          .with_file((chosen.folder / chosen.index_name).string())
          .with_values("", fmt::format("{} in {}", detail::counted(header.entries.size(), "tensor"), name));
  }
  return {};
}

result<std::vector<hf_file>> open_files(const hf_choice& chosen, file_pool& pool) {
  std::vector<hf_file> files;
  files.reserve(chosen.files.size());
  for (const std::string& name : chosen.files) {
    if (chosen.single.empty()) SHARDMESH_TRY(detail::check_name_in(chosen.folder, name));
    auto source = pool.open(chosen.path_of(name));
    if (!source) {
      error e = std::move(source).error();
      if (!chosen.index) return e;
      const auto& map = chosen.index->weight_map;
      const auto user = std::find_if(map.begin(), map.end(), [&](const auto& entry) { return entry.second == name; });
      return std::move(e).with_key(user->first).with_hint(fmt::format("{} names this file", chosen.index_name));
    }
    SHARDMESH_TRY(safetensors::header header, parse_header(**source));
    files.push_back({name, *std::move(source), std::move(header)});
  }
  return files;
}

std::string stem_of(const hf_choice& chosen, const std::vector<hf_file>& files) {
  if (!chosen.index_name.empty()) return hf_stem_of(chosen.index_name);
  const std::string first = hf_stem_of(files.front().name);
  const bool is_one =
      std::all_of(files.begin(), files.end(), [&](const hf_file& file) { return hf_stem_of(file.name) == first; });
  return is_one ? first : "model";
}

}  // namespace shardmesh::safetensors
