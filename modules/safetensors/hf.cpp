// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <plural.hpp>
#include <position_table.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.safetensors;

namespace shardmesh::safetensors {
namespace {

namespace fs = places;

// The offset of each tensor of one file in its global tensor, from DCP_SHARDING_INFO.
using saved_offsets = std::unordered_map<std::string, extents>;

result<std::optional<saved_offsets>> read_sharding_info(const hf_file& file) {
  const auto text = find_metadata(file.header, "DCP_SHARDING_INFO");
  if (!text) return std::optional<saved_offsets>{};
  const auto bad = [&](std::string_view key, std::string message) {
    return fail(errc::bad_format, "DCP_SHARDING_INFO: " + std::move(message))
        .with_key(key)
        .with_file(file.source->name());
  };
  if (text->find('\0') != std::string_view::npos) return bad({}, "is not JSON");
  if (auto shallow = check_json_depth(*text); !shallow) return bad({}, shallow.error().message);
  const auto info = nlohmann::json::parse(*text, nullptr, false);
  if (!info.is_object()) return bad({}, "is not a JSON object");
  saved_offsets offsets;
  for (const auto& [name, value] : info.items()) {
    const auto saved = value.is_object() ? value.find("saved_offsets") : value.end();
    if (!value.is_object() || saved == value.end() || !saved->is_array()) return bad(name, "has no saved_offsets");
    if (saved->size() > max_rank)
      return fail(errc::rank_too_large, fmt::format("DCP_SHARDING_INFO: has more than {} offsets", max_rank))
          .with_key(name)
          .with_file(file.source->name());
    extents offset;
    for (const auto& number : *saved) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        return bad(name, "saved_offsets holds a value that is not an offset");
      offset.push_back(number.get<std::int64_t>());
    }
    offsets.emplace(name, offset);
  }
  return std::optional(std::move(offsets));
}

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

// The files that make up the model.
struct choice {
  fs::path folder;
  std::vector<std::string> files;
  std::optional<hf_index> index;
  std::string index_name;
  std::vector<std::string> set_aside;  // other files beside the whole model
  fs::path single{};                   // the only file, as the user named it: a URL may have a query

  fs::path path_of(const std::string& name) const { return single.empty() ? folder / name : single; }
};

bool is_part(const std::string& name) {
  return hf_stem_of(name) + ".safetensors" != name;
}

// An index beside the whole model, even an unreadable one, belongs to another save. Transformers also prefers the whole
// model.
void prefer_whole_model(choice& chosen, file_pool& pool) {
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

result<choice> choose_files(const fs::path& path, file_pool& pool) {
  std::error_code ignored;
  choice chosen;
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

result<std::vector<hf_file>> open_files(const choice& chosen, file_pool& pool) {
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

// Gathers the files' tensors and joins the parts of one tensor.
class gatherer {
 public:
  explicit gatherer(const std::vector<hf_file>& files) : files_(files), by_name_(entry_count(files)) {
    found_.reserve(entry_count(files));
  }

  result<void> add_file(std::size_t number) {
    const hf_file& file = files_[number];
    SHARDMESH_TRY(const auto info, read_sharding_info(file));
    for (const safetensors::entry& entry : file.header.entries) {
      hf_chunk chunk{extents::filled(entry.shape.rank(), 0), entry.shape, number, entry.begin, entry.end};
      if (info) {
        const auto found = info->find(entry.name);
        if (found == info->end())
          return fail(errc::missing_key, "DCP_SHARDING_INFO does not name it")
              .with_key(entry.name)
              .with_file(file.source->name());
        chunk.offsets = found->second;
      }
      SHARDMESH_TRY(add_chunk(entry, chunk, info.has_value()));
    }
    return {};
  }

  std::vector<hf_tensor> tensors() && {
    std::vector<hf_tensor> made;
    made.reserve(found_.size());
    for (gathered& part : found_) made.push_back(std::move(part.tensor));
    const auto by_name = [](const hf_tensor& a, const hf_tensor& b) { return a.name < b.name; };
    if (!std::is_sorted(made.begin(), made.end(), by_name)) std::sort(made.begin(), made.end(), by_name);
    return made;
  }

 private:
  static std::size_t entry_count(const std::vector<hf_file>& files) {
    std::size_t count = 0;
    for (const hf_file& file : files) count += file.header.entries.size();
    return count;
  }
  struct gathered {
    hf_tensor tensor;
    bool is_sharded = false;
  };

  result<void> add_chunk(const safetensors::entry& entry, const hf_chunk& chunk, bool is_sharded) {
    const auto bad = [&](errc code, std::string message) {
      return fail(code, std::move(message)).with_key(entry.name).with_file(files_[chunk.file].source->name());
    };
    if (chunk.offsets.rank() != entry.shape.rank())
      return bad(errc::shape_mismatch, "its saved_offsets and its shape differ in length")
          .with_values(detail::counted(entry.shape.rank(), "offset"), to_string(chunk.offsets));
    const box where{chunk.offsets, chunk.sizes};
    if (!is_well_formed(where))
      return bad(errc::overflow, "its saved_offsets are too large").with_values({}, to_string(chunk.offsets));

    const auto hash_of = [&](std::size_t i) { return std::hash<std::string_view>()(found_[i].tensor.name); };
    const std::uint64_t hash = std::hash<std::string_view>()(entry.name);
    std::size_t at = by_name_.find(hash, [&](std::size_t i) { return found_[i].tensor.name == entry.name; });
    const bool is_new = at == by_name_.none;
    if (is_new) {
      at = found_.size();
      found_.emplace_back();
      by_name_.insert(hash, at, hash_of);
    }
    gathered& known = found_[at];
    if (is_new) {
      known = {{entry.name, entry.type, extents::filled(entry.shape.rank(), 0), {}}, is_sharded};
    } else {
      const std::string& other = files_[known.tensor.chunks.front().file].name;
      if (!known.is_sharded || !is_sharded) return bad(errc::duplicate_key, fmt::format("is also in {}", other));
      if (known.tensor.type != entry.type)
        return bad(errc::dtype_mismatch, fmt::format("its parts differ in dtype, the other is in {}", other))
            .with_values(std::string(name(known.tensor.type)), std::string(name(entry.type)));
      if (known.tensor.shape.rank() != entry.shape.rank())
        return bad(errc::shape_mismatch, fmt::format("its parts differ in rank, the other is in {}", other))
            .with_values(detail::counted(known.tensor.shape.rank(), "dimension"), to_string(entry.shape));
    }
    for (std::size_t d = 0; d < where.rank(); ++d)
      known.tensor.shape[d] = std::max(known.tensor.shape[d], where.end(d));
    if (!checked_volume(known.tensor.shape))
      return bad(errc::overflow, fmt::format("its parts make a tensor of {}, which does not fit in 64 bits",
                                             to_string(known.tensor.shape)));
    known.tensor.chunks.push_back(chunk);
    return {};
  }

  const std::vector<hf_file>& files_;
  std::vector<gathered> found_;
  detail::position_table by_name_;  // indexes found_
};

// The index must name the right file for every tensor, and every tensor of its files.
result<void> check_index(const choice& chosen, const std::vector<hf_file>& files,
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

// An index without entries is valid only for a model without tensors.
result<void> check_not_empty(const choice& chosen, file_pool& pool) {
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

// Returns "model" for "model.fp16.safetensors" and "model.fp16-00001-of-00002.safetensors"; a stem without a dot is
// unchanged.
std::string without_variant(const std::string& stem) {
  return stem.substr(0, stem.find('.'));
}

// Removes files that are copies of others. When no file is more canonical than the others, all stay; a tensor in two of
// them is then an error.
std::vector<std::string> set_copies_aside(std::vector<hf_file>& files) {
  std::unordered_set<std::string> whole, stems;  // stems of whole files, and of all files
  for (const hf_file& file : files) {
    const std::string stem = hf_stem_of(file.name);
    stems.insert(stem);
    if (!is_part(file.name)) whole.insert(stem);
  }
  // Returns the stem of which a file may be a copy; empty for none.
  const auto original_of = [&](const hf_file& file) -> std::string {
    const std::string stem = hf_stem_of(file.name), plain = without_variant(stem);
    if (plain != stem && stems.contains(plain)) return plain;
    return is_part(file.name) && whole.contains(stem) ? stem : std::string();
  };
  std::map<std::string, std::unordered_set<std::string_view>> names;  // of the originals
  for (const hf_file& file : files)
    if (original_of(file).empty())
      for (const safetensors::entry& entry : file.header.entries) names[hf_stem_of(file.name)].insert(entry.name);
  std::vector<std::string> aside;
  std::vector<bool> is_aside;
  for (const hf_file& file : files) {
    const std::string original = original_of(file);
    const bool is_copy =
        !original.empty() && std::any_of(file.header.entries.begin(), file.header.entries.end(),
                                         [&](const auto& entry) { return names[original].contains(entry.name); });
    is_aside.push_back(is_copy || (file.name.starts_with("consolidated") && stems.contains("model")));
    if (is_aside.back()) aside.push_back(file.name);
  }
  std::size_t at = 0;
  std::erase_if(files, [&](const hf_file&) { return is_aside[at++]; });
  return aside;
}

// Returns the stem that all files share.
std::string stem_of(const choice& chosen, const std::vector<hf_file>& files) {
  if (!chosen.index_name.empty()) return hf_stem_of(chosen.index_name);
  const std::string first = hf_stem_of(files.front().name);
  const bool is_one =
      std::all_of(files.begin(), files.end(), [&](const hf_file& file) { return hf_stem_of(file.name) == first; });
  return is_one ? first : "model";
}

}  // namespace

result<hf_folder> open_hf_folder(const fs::path& path, file_pool& pool) {
  SHARDMESH_TRY(choice chosen, choose_files(path, pool));
  hf_folder folder;
  SHARDMESH_TRY(check_not_empty(chosen, pool));
  SHARDMESH_TRY(folder.files, open_files(chosen, pool));
  folder.set_aside = std::move(chosen.set_aside);
  if (!chosen.index) std::ranges::move(set_copies_aside(folder.files), std::back_inserter(folder.set_aside));
  folder.stem = stem_of(chosen, folder.files);
  gatherer gathered(folder.files);
  for (std::size_t f = 0; f < folder.files.size(); ++f) SHARDMESH_TRY(gathered.add_file(f));
  folder.tensors = std::move(gathered).tensors();
  if (chosen.index) SHARDMESH_TRY(check_index(chosen, folder.files, folder.tensors));
  folder.index = std::move(chosen.index);
  return folder;
}

}  // namespace shardmesh::safetensors
