// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.safetensors;
import shardmesh.torch_file;
import :model_files;

namespace shardmesh {
namespace fs = places;
namespace {

using safetensors::is_torch_model_index;
using safetensors::parse_torch_model_name;

// The stem of the Hugging Face files that this model would be converted to.
std::string hf_stem(const std::string& file) {
  const auto parsed = parse_torch_model_name(file);
  return !parsed || parsed->stem == "pytorch_model" ? "model" : parsed->stem;
}

// The files that make up the model.
struct choice {
  fs::path folder;
  std::vector<std::string> files;  // in order
  std::string index_name;          // empty: there is none
  std::optional<safetensors::hf_index> index;
  std::vector<std::string> set_aside;
};

result<std::vector<std::string>> list_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    names.push_back(at->path().filename().string());
  if (code) return fs::failure(code, "cannot list", folder);
  std::sort(names.begin(), names.end());
  return names;
}

// Chooses files without an index: those of one stem and variant, whole or in a series.
result<void> choose_by_name(choice& chosen, const std::vector<std::string>& names) {
  using group = std::tuple<bool, std::string, std::string, int>;  // has a variant?, variant, stem, number of parts
  std::map<group, std::map<int, std::string>> models;
  for (const std::string& name : names)
    if (const auto parsed = parse_torch_model_name(name))
      models[{!parsed->variant.empty(), parsed->variant, parsed->stem, parsed->parts}].emplace(parsed->part, name);
  if (models.empty())
    return fail(errc::bad_format, "has no pytorch_model.bin and no similar file").with_file(chosen.folder.string());
  // The first group is the most canonical: no variant, and a whole file before a series.
  const auto& [which, files] = *models.begin();
  for (const auto& [other, others] : models) {
    if (other == which) continue;
    if (std::get<2>(other) != std::get<2>(which) && std::get<0>(other) == std::get<0>(which))
      return fail(errc::bad_format,
                  fmt::format("holds several models, {} and {}", files.begin()->second, others.begin()->second))
          .with_file(chosen.folder.string())
          .with_hint("open one of them by its name");
    for (const auto& [part, name] : others) chosen.set_aside.push_back(name);
  }
  const int parts = std::get<3>(which);
  for (const auto& [part, name] : files) chosen.files.push_back(name);
  if (parts == 0) return {};
  for (int part = 1; part <= parts; ++part) {
    if (files.contains(part)) continue;
    const std::string& first = files.begin()->second;
    return fail(errc::bad_format, fmt::format("part {:05} of {:05} is missing", part, parts))
        .with_file((chosen.folder / first).string());
  }
  if (static_cast<int>(files.size()) != parts)
    return fail(errc::bad_format, fmt::format("is not one of the model's {} parts", parts))
        .with_file((chosen.folder / (files.contains(0) ? files.at(0) : files.rbegin()->second)).string());
  return {};
}

result<choice> choose_files(const fs::path& path) {
  std::error_code ignored;
  choice chosen;
  chosen.folder = path;
  std::vector<std::string> names;
  if (fs::is_directory(path, ignored)) {
    SHARDMESH_TRY(names, list_names(path));
    std::vector<std::string> indices;
    std::copy_if(names.begin(), names.end(), std::back_inserter(indices), is_torch_model_index);
    // Of the indices of a model and its variants, the one without a variant has the shortest name.
    std::sort(indices.begin(), indices.end(),
              [](const auto& a, const auto& b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
    if (!indices.empty()) chosen.index_name = indices.front();
    for (std::size_t i = 1; i < indices.size(); ++i) {
      const auto stem = [](const std::string& name) { return name.substr(0, name.find('.')); };
      if (stem(indices[i]) != stem(indices[0]))
        return fail(errc::bad_format, fmt::format("has several indices, {} and {}", indices[0], indices[i]))
            .with_file(path.string())
            .with_hint("open one of them by its name");
      chosen.set_aside.push_back(indices[i]);
    }
  } else {
    chosen.folder = fs::folder_of(path);
    chosen.index_name = fs::name_of(path).string();
  }
  // An index beside the whole model is from an earlier save: transformers also prefers the whole file.
  const std::string whole = chosen.index_name.substr(0, chosen.index_name.rfind(".index.json"));
  if (std::find(names.begin(), names.end(), whole) != names.end()) {
    chosen.set_aside.push_back(chosen.index_name);
    chosen.index_name.clear();
  }
  if (chosen.index_name.empty()) {
    SHARDMESH_TRY(choose_by_name(chosen, names));
    return chosen;
  }
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(chosen.folder / chosen.index_name));
  SHARDMESH_TRY(chosen.index, safetensors::parse_hf_index(*source));
  std::set<std::string> files;
  for (const auto& [key, file] : chosen.index->weight_map) files.insert(file);
  chosen.files.assign(files.begin(), files.end());
  if (chosen.files.empty())
    return fail(errc::bad_format, "the index names no tensor").with_file((chosen.folder / chosen.index_name).string());
  for (const std::string& name : names)
    if (parse_torch_model_name(name) && !files.contains(name)) chosen.set_aside.push_back(name);
  return chosen;
}

class model_reader final : public composed_reader {
 public:
  explicit model_reader(const fs::path& path) : composed_reader(checkpoint_format::torch_files, path) {}

  result<void> open(const choice& chosen, const open_options& options) {
    contents_.stem = hf_stem(chosen.files.front());
    if (!chosen.set_aside.empty())
      warnings_.push_back(fail(errc::duplicate_key, fmt::format("has other copies of the model, which are not read: {}",
                                                                name_list(chosen.set_aside)))
                              .with_file(path_.string())
                              .with_hint("open one of them by its name to read it"));
    if (chosen.index && !chosen.index->unread.empty())
      notes_.push_back("not kept: members of the index: " + name_list(chosen.index->unread));
    for (const std::string& name : chosen.files) SHARDMESH_TRY(add_file(chosen, name, options));
    return chosen.index ? check_index(chosen) : result<void>{};
  }

 private:
  result<void> add_file(const choice& chosen, const std::string& name, const open_options& options) {
    SHARDMESH_TRY(detail::check_name_in(chosen.folder, name));
    auto opened = torch_file::open(chosen.folder / name, options);
    if (!opened) {
      error cause = std::move(opened).error();
      if (!chosen.index || cause.sys != ENOENT) return cause;
      cause.code = errc::bad_format;  // the index names a missing file: the data is at fault
      const auto& map = chosen.index->weight_map;
      const auto user = std::find_if(map.begin(), map.end(), [&](const auto& entry) { return entry.second == name; });
      return std::move(cause).with_key(user->first).with_hint(fmt::format("{} names this file", chosen.index_name));
    }
    const std::size_t part = add_part(std::move(*opened));
    const catalog& contents = this->part(part).contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
      const tensor_entry& tensor = contents.tensors[i];
      SHARDMESH_TRY(take(tensor.key, name, chosen));
      SHARDMESH_TRY(add_whole_tensor(tensor.key, tensor.where, part, i));
    }
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const object_entry& object = contents.objects[i];
      SHARDMESH_TRY(take(object.key, name, chosen));
      SHARDMESH_TRY(add_object(object.key, object.where, part, i));
    }
    return {};
  }

  result<void> take(const std::string& key, const std::string& file, const choice& chosen) {
    const auto [known, is_new] = file_of_.emplace(key, file);
    if (is_new) return {};
    return fail(errc::duplicate_key, fmt::format("is also in {}", known->second))
        .with_key(key)
        .with_file((chosen.folder / file).string());
  }

  // Checks that every entry is in the file that the index names for it, and that the index names every tensor.
  result<void> check_index(const choice& chosen) const {
    const std::string index_file = (chosen.folder / chosen.index_name).string();
    std::set<std::string_view> named;
    for (const auto& [key, file] : chosen.index->weight_map) {
      named.insert(key);
      const auto known = file_of_.find(key);
      if (known != file_of_.end() && known->second == file) continue;
      error e = fail(errc::missing_key, fmt::format("the index says that it is in {}, which does not have it", file))
                    .with_key(key)
                    .with_file(index_file);
      if (known != file_of_.end()) e = std::move(e).with_hint(fmt::format("it is in {}", known->second));
      return e;
    }
    for (const tensor_entry& tensor : contents_.tensors)
      if (!named.contains(tensor.key))
        return fail(errc::bad_format, fmt::format("is in {} but the index does not name it", file_of_.at(tensor.key)))
            .with_key(tensor.key)
            .with_file(index_file);
    return {};
  }

  std::unordered_map<std::string, std::string> file_of_;  // by key
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_model_files(const fs::path& path, const open_options& options) {
  SHARDMESH_TRY(const choice chosen, choose_files(path));
  auto reader = std::make_unique<model_reader>(path);
  SHARDMESH_TRY(reader->open(chosen, options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
