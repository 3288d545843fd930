// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <filesystem>
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

import shardmesh.dcp;
import shardmesh.deepspeed;
import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torchsnapshot;
import :consolidated_files;
import :consolidated_name;
import :folder_survey;
import :folders;
import :model_files;
import :folder_parts;
import :rank_files;

namespace shardmesh {
namespace fs = places;
namespace {

bool is_dcp_name(std::string_view name) {
  return name == ".metadata" || name == ".metadata.tmp" || name.ends_with(".distcp") ||
         (name.starts_with("__") && name.ends_with(".metadata"));
}

bool is_torch_model_file(const std::string& name) {
  return safetensors::parse_torch_model_name(name) || safetensors::is_torch_model_index(name);
}

bool is_safetensors_file(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

result<std::vector<std::string>> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    names.push_back(at->path().filename().string());
  if (code) return fs::failure(code, "cannot list", folder);
  return names;
}

checkpoint_part own_part(const fs::path& folder, checkpoint_format format) {
  return {
      .name = "checkpoint", .path = folder, .own = format, .whole_name = fmt::format("checkpoint_{}", name(format))};
}

}  // namespace

result<std::vector<checkpoint_part>> list_own_checkpoints(const fs::path& folder) {
  SHARDMESH_TRY(const std::vector<std::string> names, names_in(folder));
  std::vector<checkpoint_part> found;
  const bool is_dcp = std::any_of(names.begin(), names.end(), is_dcp_name);
  if (is_dcp) found.push_back(own_part(folder, checkpoint_format::dcp));
  // A DCP folder may hold any other file.
  if (!is_dcp && torch_checkpointing::is_folder(folder))
    found.push_back(own_part(folder, checkpoint_format::torch_checkpointing));
  if (torchsnapshot::is_snapshot(folder)) found.push_back(own_part(folder, checkpoint_format::torchsnapshot));
  if (deepspeed::holds_checkpoint(folder)) {
    found.push_back(own_part(folder, checkpoint_format::deepspeed));
    const auto step = deepspeed::step_folder(folder);
    if (step && *step != folder) found.back().name = found.back().whole_name = step->filename().string();
  }
  return found;
}

result<std::vector<checkpoint_part>> list_named_files(const fs::path& folder,
                                                      function_ref<bool(const std::string& name)> is_claimed) {
  SHARDMESH_TRY(const std::vector<std::string> names, names_in(folder));
  std::vector<checkpoint_part> found;
  const auto holds = [&](auto matches, bool claimed) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.front() != '.' && matches(name) && is_claimed(name) == claimed;
    });
  };
  const auto add_model = [&](checkpoint_format format) {
    found.push_back({.name = "model", .path = folder, .own = format, .whole_name = "model_files"});
  };
  // If another checkpoint has claimed some of the folder's files, the others are not one model: each becomes a part.
  if (holds(is_safetensors_file, false) && !holds(is_safetensors_file, true))
    add_model(checkpoint_format::hf);
  else if (holds(is_torch_model_file, false) && !holds(is_safetensors_file, false))
    add_model(checkpoint_format::torch_files);
  else if (holds(npz::is_weights_name, false) && !holds(is_safetensors_file, false))
    add_model(checkpoint_format::npz);
  const auto is_consolidated = [](const std::string& name) { return parse_consolidated_name(name).has_value(); };
  if (holds(is_consolidated, false) && !holds(is_consolidated, true))
    found.push_back(
        {.name = "consolidated", .path = folder, .is_consolidated = true, .whole_name = "consolidated_files"});
  SHARDMESH_TRY(std::vector<rank_file_group> groups, list_rank_files(folder));
  std::erase_if(groups, [&](const rank_file_group& group) {
    return std::any_of(group.files.begin(), group.files.end(),
                       [&](const auto& file) { return is_claimed(file.second); });
  });
  for (rank_file_group& group : groups) {
    const bool is_only = std::count_if(groups.begin(), groups.end(),
                                       [&](const rank_file_group& other) { return other.stem == group.stem; }) == 1;
    std::string name = is_only ? group.stem : fmt::format("{}_world_size_{}", group.stem, group.world_size.value_or(0));
    std::string whole_name = name + "_ranks";
    found.push_back({.name = std::move(name), .path = folder, .ranks = group, .whole_name = std::move(whole_name)});
  }
  return found;
}

bool is_name_of(const checkpoint_part& part, const std::string& name) {
  if (part.ranks)
    return std::any_of(part.ranks->files.begin(), part.ranks->files.end(),
                       [&](const auto& file) { return file.second == name; });
  if (part.is_consolidated) return parse_consolidated_name(name).has_value();
  if (name == checksum_file_name) return part.own.has_value();
  if (part.own == checkpoint_format::dcp) return is_dcp_name(name);
  if (part.own == checkpoint_format::hf)
    return name == "objects.json" || (!name.starts_with('.') && is_safetensors_file(name));
  if (part.own == checkpoint_format::torch_files) return is_torch_model_file(name);
  if (part.own == checkpoint_format::npz) return npz::is_weights_name(name);
  if (part.own == checkpoint_format::torchsnapshot) return name == ".snapshot_metadata";
  if (part.own == checkpoint_format::torch_checkpointing) return name == torch_checkpointing::metadata_file_name;
  if (part.own == checkpoint_format::deepspeed)
    return name.ends_with("_model_states.pt") || name.ends_with("optim_states.pt");
  return false;
}

void make_names_unique(std::vector<checkpoint_part>& parts) {
  std::map<std::string, int> uses;
  for (const checkpoint_part& part : parts) ++uses[part.name];
  for (checkpoint_part& part : parts)
    if (uses[part.name] > 1) part.name = part.whole_name;
  std::set<std::string> taken;
  for (checkpoint_part& part : parts) {
    const std::string name = part.name;
    for (int i = 2; !taken.insert(part.name).second; ++i) part.name = fmt::format("{}_{}", name, i);
  }
}

result<std::vector<checkpoint_part>> list_parts(const fs::path& folder) {
  SHARDMESH_TRY(std::vector<checkpoint_part> parts, list_own_checkpoints(folder));
  const auto is_claimed = [&](const std::string& name) {
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return is_name_of(part, name); });
  };
  SHARDMESH_TRY(std::vector<checkpoint_part> named, list_named_files(folder, is_claimed));
  // A torch_checkpointing folder may have safetensors files of any name; only its metadata lists them.
  const bool is_of_items = std::any_of(parts.begin(), parts.end(), [](const checkpoint_part& part) {
    return part.own == checkpoint_format::torch_checkpointing;
  });
  for (checkpoint_part& part : named)
    if (!is_of_items || !part.is_model()) parts.push_back(std::move(part));
  // A model need not own every safetensors file beside it. Each file can be a part of its own, except one called
  // "model".
  const auto is_taken = [&](const std::string& name) {
    const bool can_be_named = name.ends_with(".safetensors") && fs::path(name).stem() != "model" && !is_of_items;
    return !can_be_named && is_claimed(name);
  };
  SHARDMESH_TRY(folder_survey found, survey_folder(folder, is_taken));
  std::vector<std::string> files = std::move(found.files), folders = std::move(found.folders);
  for (std::string& link : found.links) {
    std::error_code ignored;
    const fs::path at = folder / link;
    if (fs::is_directory(at, ignored))
      folders.push_back(std::move(link));
    else if (is_weight_name(link) && fs::is_regular_file(at, ignored))
      files.push_back(std::move(link));
  }
  for (const std::string& file : files)
    if (!safetensors::parse_torch_model_name(file))
      parts.push_back({.name = fs::path(file).stem().string(), .path = folder / file, .whole_name = file});
  for (const std::string& name : folders) {
    const auto format = format_of_folder(folder / name);
    if (format && *format) parts.push_back({.name = name, .path = folder / name, .whole_name = name});
  }
  make_names_unique(parts);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return parts;
}

result<std::unique_ptr<checkpoint_reader>> open_part(const checkpoint_part& part, const open_options& options) {
  if (part.ranks) return open_rank_files(part.path, *part.ranks, options);
  if (part.is_consolidated) return open_consolidated_files(part.path, options);
  if (!part.own) return open_checkpoint(part.path, options);
  switch (*part.own) {
    case checkpoint_format::dcp:
      return dcp::open(part.path, options);
    case checkpoint_format::torch_checkpointing:
      return torch_checkpointing::open(part.path, options);
    case checkpoint_format::torchsnapshot:
      return torchsnapshot::open(part.path, options);
    case checkpoint_format::deepspeed:
      return deepspeed::open(part.path, options);
    case checkpoint_format::torch_files:
      return open_model_files(part.path, options);
    case checkpoint_format::npz:
      return npz::open_folder(part.path, options);
    default:
      return safetensors::open_folder(part.path, options);
  }
}

result<std::unique_ptr<checkpoint_reader>> open_named_part(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, code)) return std::unique_ptr<checkpoint_reader>();
  if (is_url(path)) {
    // The parts of a folder that holds no checkpoint, such as a bucket, would cost a request for each of its folders.
    SHARDMESH_TRY(const auto format, format_of_folder(folder));
    if (!format) return std::unique_ptr<checkpoint_reader>();
  }
  SHARDMESH_TRY(const std::vector<checkpoint_part> parts, list_parts(folder));
  const std::string wanted = path.filename().string();
  std::vector<std::string> alike;
  for (const checkpoint_part& part : parts) {
    if (part.name == wanted) return open_part(part, options);
    if (fs::path(part.name).stem() == wanted || part.name.starts_with(wanted + "_world_size_"))
      alike.push_back(part.name);
  }
  if (alike.empty()) return std::unique_ptr<checkpoint_reader>();
  return fail(errc::bad_format, fmt::format("several parts have this name: {}", name_list(alike)))
      .with_file(path.string())
      .with_hint("give the full name of one of them");
}

std::string names_of(std::span<const checkpoint_part> parts) {
  std::vector<std::string> names;
  for (const checkpoint_part& part : parts) names.push_back(part.name);
  return name_list(names);
}

}  // namespace shardmesh
