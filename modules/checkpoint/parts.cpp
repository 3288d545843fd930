// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.safetensors;
import shardmesh.torch_file;
import :folders;
import :model_files;
import :parts;
import :rank_files;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

// Looked at beyond the folder itself, so that one with a million files in it costs little.
constexpr std::size_t most_parts = 1000;

bool is_torch_name(std::string_view name) {
  constexpr auto endings = std::to_array<std::string_view>({".bin", ".pt", ".pth", ".ckpt", ".pkl"});
  return std::any_of(endings.begin(), endings.end(), [&](auto end) { return name.ends_with(end); });
}

// The model whose files lie in the folder beside other things; empty format: none does.
bool holds_model(const fs::path& folder) {
  const auto format = format_of_folder(folder);
  if (!format || !*format || *format == checkpoint_format::dcp) return false;
  if (*format == checkpoint_format::hf) return true;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (safetensors::parse_torch_model_name(name) || safetensors::is_torch_model_index(name)) return true;
  }
  return false;
}

// Two of one name have their whole file names; what has no file of its own (the model in the folder, files of ranks)
// says what it is. A folder keeps its name: its path is that.
void make_names_unique(std::vector<checkpoint_part>& parts, const fs::path& folder) {
  std::map<std::string, int> uses;
  for (const checkpoint_part& part : parts) ++uses[part.name];
  for (checkpoint_part& part : parts) {
    if (uses[part.name] == 1) continue;
    if (part.path != folder)
      part.name = part.path.filename().string();
    else
      part.name += part.is_model ? "_files" : "_ranks";
  }
  std::set<std::string> taken;
  for (checkpoint_part& part : parts)
    for (int i = 2; !taken.insert(part.name).second; ++i) part.name = fmt::format("{}_{}", part.name, i);
}

class all_parts_reader final : public composed_reader {
 public:
  explicit all_parts_reader(const fs::path& folder) : composed_reader(checkpoint_format::parts, folder) {}

  // What is no checkpoint is left out, with a warning; what is a damaged one is a problem.
  void add(const checkpoint_part& from, const open_options& options) {
    auto opened = open_part(from, options);
    if (!opened) {
      auto& into = opened.error().code == errc::unsupported ? warnings_ : problems_;
      into.push_back(std::move(opened).error());
      return;
    }
    std::error_code code;
    const bool lies_below = from.path != path_ && fs::is_directory(from.path, code);
    const std::size_t number = add_part(*std::move(opened), lies_below ? from.path.filename().string() + "/" : "");
    const catalog& contents = part(number).contents();
    const auto below = [&](const shardmesh::path& where) {
      shardmesh::path made{from.name};
      made.append(where);
      return made;
    };
    // "c.b" of one part and "b" of the part "c" may meet.
    const auto keep = [&](result<void> added) {
      if (!added) problems_.push_back(std::move(added).error().with_file(part(number).path().string()));
    };
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      keep(add_whole_tensor(from.name + "." + contents.tensors[i].key, below(contents.tensors[i].where), number, i));
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      keep(add_object(from.name + "." + contents.objects[i].key, below(contents.objects[i].where), number, i));
  }
};

}  // namespace

result<std::vector<checkpoint_part>> list_parts(const fs::path& folder) {
  std::vector<checkpoint_part> parts;
  const bool has_model = holds_model(folder);
  if (has_model) parts.push_back({.name = "model", .path = folder, .is_model = true});
  SHARDMESH_TRY(std::vector<rank_file_group> groups, list_rank_files(folder));
  for (rank_file_group& group : groups) {
    const bool is_only = std::count_if(groups.begin(), groups.end(),
                                       [&](const rank_file_group& other) { return other.stem == group.stem; }) == 1;
    std::string name = is_only ? group.stem : fmt::format("{}_world_size_{}", group.stem, group.world_size.value_or(0));
    parts.push_back({.name = std::move(name), .path = folder, .ranks = group});
  }
  std::error_code code;
  std::vector<fs::path> below;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (below.size() == most_parts) break;
    const std::string name = at->path().filename().string();
    if (!name.starts_with('.')) below.push_back(at->path());
  }
  if (code) return fail_sys(code.value(), "cannot list", folder.string());
  std::sort(below.begin(), below.end());
  for (const fs::path& at : below) {
    const std::string name = at.filename().string();
    std::error_code ignored;
    if (fs::is_directory(at, ignored)) {
      const auto format = format_of_folder(at);
      if (!fs::is_symlink(at, ignored) && format && *format) parts.push_back({.name = name, .path = at});
    } else if (is_torch_name(name) && fs::is_regular_file(at, ignored) && !parse_rank_file_name(name) &&
               !safetensors::parse_torch_model_name(name)) {
      parts.push_back({.name = at.stem().string(), .path = at});
    }
  }
  make_names_unique(parts, folder);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return parts;
}

result<std::unique_ptr<checkpoint_reader>> open_part(const checkpoint_part& part, const open_options& options) {
  if (part.ranks) return open_rank_files(part.path, *part.ranks, options);
  if (part.is_model) {
    SHARDMESH_TRY(const auto format, format_of_folder(part.path));
    if (format == checkpoint_format::torch_files) return open_model_files(part.path, options);
  }
  return open_checkpoint(part.path, options);
}

result<std::unique_ptr<checkpoint_reader>> open_named_part(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, code)) return std::unique_ptr<checkpoint_reader>();
  SHARDMESH_TRY(const std::vector<checkpoint_part> parts, list_parts(folder));
  const std::string wanted = path.filename().string();
  std::vector<std::string> alike;
  for (const checkpoint_part& part : parts) {
    if (part.name == wanted) return open_part(part, options);
    if (fs::path(part.name).stem() == wanted || part.name.starts_with(wanted + "_world_size_"))
      alike.push_back(part.name);
  }
  if (alike.empty()) return std::unique_ptr<checkpoint_reader>();
  return fail(errc::bad_format, fmt::format("several parts are called so: {}", name_list(alike)))
      .with_file(path.string())
      .with_hint("say which, in full");
}

// Whether the files in the folder itself are one checkpoint, not parts.
bool is_one_of_files(const fs::path& folder) {
  const auto format = format_of_folder(folder);
  return format && (*format == checkpoint_format::torch_checkpointing || *format == checkpoint_format::torchsnapshot ||
                    *format == checkpoint_format::deepspeed);
}

std::string names_of(std::span<const checkpoint_part> parts) {
  std::vector<std::string> names;
  for (const checkpoint_part& part : parts) names.push_back(part.name);
  return name_list(names);
}

result<std::unique_ptr<checkpoint_reader>> open_parts(const fs::path& folder, const open_options& options) {
  std::error_code code;
  if (!fs::exists(folder, code)) return open_checkpoint(folder, options);  // says why not
  if (fs::is_directory(folder, code) && is_one_of_files(folder)) return open_checkpoint(folder, options);
  SHARDMESH_TRY(const std::vector<checkpoint_part> parts,
                fs::is_directory(folder, code) ? list_parts(folder) : std::vector<checkpoint_part>{});
  if (parts.empty()) return open_checkpoint(folder, options);
  auto reader = std::make_unique<all_parts_reader>(folder);
  open_options all = options;
  all.files = options.pool();
  for (const checkpoint_part& part : parts) reader->add(part, all);
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
