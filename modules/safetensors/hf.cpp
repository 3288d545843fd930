// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :hf_choice;
import :hf_copies;
import :hf_parts;

namespace shardmesh::safetensors {
namespace {

// The index must name the right file for every tensor, and every tensor of its files.
result<void> check_index(const hf_choice& chosen, const std::vector<hf_file>& files,
                         const std::vector<hf_tensor>& tensors) {
  const std::string index_file = (chosen.folder / chosen.index_name).string();
  const auto find = [&](const std::string& name) {
    const auto at = std::lower_bound(tensors.begin(), tensors.end(), name,
                                     [](const hf_tensor& t, const std::string& n) { return t.name < n; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
  };
  for (const auto& [name, file] : chosen.index->weight_map) {
    const hf_tensor* tensor = find(name);
    const bool there =
        tensor != nullptr && std::any_of(tensor->chunks.begin(), tensor->chunks.end(),
                                         [&](const hf_chunk& chunk) { return files[chunk.file].name == file; });
    if (there) continue;
    error e = fail(errc::missing_key, fmt::format("the index says that it is in {}, which does not have it", file))
                  .with_key(name)
                  .with_file(index_file);
    if (tensor != nullptr)
      e = std::move(e).with_hint(fmt::format("it is in {}", files[tensor->chunks.front().file].name));
    return e;
  }
  if (chosen.index->weight_map.size() == tensors.size()) return {};
  std::vector<std::string_view> named;
  for (const auto& [name, file] : chosen.index->weight_map) named.push_back(name);
  std::sort(named.begin(), named.end());
  for (const hf_tensor& tensor : tensors)
    if (!std::binary_search(named.begin(), named.end(), std::string_view(tensor.name)))
      return fail(errc::bad_format,
                  fmt::format("is in {} but the index does not name it", files[tensor.chunks.front().file].name))
          .with_key(tensor.name)
          .with_file(index_file);
  return {};
}

}  // namespace

result<hf_folder> open_hf_folder(const std::filesystem::path& path, file_pool& pool) {
  SHARDMESH_TRY(hf_choice chosen, choose_files(path, pool));
  hf_folder folder;
  SHARDMESH_TRY(check_not_empty(chosen, pool));
  SHARDMESH_TRY(folder.files, open_files(chosen, pool));
  folder.set_aside = std::move(chosen.set_aside);
  if (!chosen.index) std::ranges::move(set_copies_aside(folder.files), std::back_inserter(folder.set_aside));
  folder.stem = stem_of(chosen, folder.files);
  SHARDMESH_TRY(folder.tensors, join_parts(folder.files));
  if (chosen.index) SHARDMESH_TRY(check_index(chosen, folder.files, folder.tensors));
  folder.index = std::move(chosen.index);
  return folder;
}

}  // namespace shardmesh::safetensors
