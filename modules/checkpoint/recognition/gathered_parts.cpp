// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
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
import :folder_survey;
import :folders;
import :gathered_parts;
import :part_gatherer;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr int deepest = 64;  // levels of nested folders

}  // namespace

part_gatherer::part_gatherer(fs::path top, const open_options& options) : top_(std::move(top)), options_(options) {
  std::error_code ignored;
  real_top_ = fs::canonical(top_, ignored);
}

result<gathered_parts> part_gatherer::run() {
  SHARDMESH_TRY(look_in("", 0));
  follow_links();
  for (const std::string& name : nameless_)
    if (!is_claimed(name) && !is_visited(name)) take_file(folder_of(name), name.substr(folder_of(name).size()), {});
  finish_names();
  name_the_rest();
  return std::move(found_);
}

bool part_gatherer::holds_claimed(const std::string& folder) const {
  const auto next = claimed_.lower_bound(folder);
  return next != claimed_.end() && next->starts_with(folder);
}

fs::path part_gatherer::path_of(const std::string& folder) const {
  return folder.empty() ? top_ : top_ / folder.substr(0, folder.size() - 1);
}

result<void> part_gatherer::look_in(const std::string& folder, int depth) {
  const fs::path at = path_of(folder);
  std::error_code code;
  visited_.insert(fs::canonical(at, code).string());
  if (depth > deepest) {
    found_.problems.push_back(fail(errc::unsupported, fmt::format("is nested deeper than {} folders", deepest))
                                  .with_file(at.string())
                                  .with_hint("open it directly"));
    return {};
  }
  folder_contents contents;
  if (!holds_claimed(folder) || folder.empty()) SHARDMESH_TRY(take_own(folder, contents));
  SHARDMESH_TRY(folder_survey names, survey_folder(at, [&](const std::string& name) {
                  return is_claimed(folder + name) || is_name_of_own(contents, name);
                }));
  for (const std::string& name : names.files)
    is_weight_name(name) ? take_file(folder, name, contents) : static_cast<void>(nameless_.insert(folder + name));
  for (const std::string& name : names.folders) look_below(folder + name + "/", depth);
  const auto keep = [&](std::vector<std::string>& from, std::vector<std::string>& into) {
    for (const std::string& name : from) into.push_back(folder + name);
  };
  keep(names.links, links_);
  keep(names.beside, beside_);
  keep(names.unknown, unknown_);
  return {};
}

void part_gatherer::look_below(const std::string& folder, int depth) {
  if (auto done = look_in(folder, depth + 1); !done) found_.problems.push_back(std::move(done).error());
}

bool part_gatherer::is_name_of_own(const folder_contents& contents, const std::string& name) {
  // An opened model knows its own files: an index may leave some out.
  const bool is_described = !contents.models.empty() && is_name_of_copy(name);
  return std::any_of(contents.own.begin(), contents.own.end(), [&](const checkpoint_part& part) {
    return !(is_described && part.is_model()) && is_name_of(part, name);
  });
}

result<void> part_gatherer::take_own(const std::string& folder, folder_contents& contents) {
  SHARDMESH_TRY(std::vector<checkpoint_part> own, list_own_checkpoints(path_of(folder)));
  const std::size_t first = found_.parts.size();
  for (const checkpoint_part& part : own) take_part(folder, part, contents);
  const auto is_claimed_here = [&](const std::string& name) {
    return is_claimed(folder + name) || is_name_of_own(contents, name);
  };
  auto named = list_named_files(path_of(folder), is_claimed_here);
  if (!named) {
    found_.problems.push_back(std::move(named).error());
    return {};
  }
  for (const checkpoint_part& part : *named) take_part(folder, part, contents);
  // In a nested folder, a single checkpoint takes the folder's name.
  const bool is_only = own.size() + named->size() == 1;
  const std::string name = folder.substr(0, folder.empty() ? 0 : folder.size() - 1);
  for (std::size_t i = first; i < found_.parts.size() && !folder.empty(); ++i) {
    checkpoint_part& part = found_.parts[i].part;
    part.whole_name = is_only ? name : folder + part.whole_name;
    part.name = is_only ? name : folder + part.name;
  }
  return {};
}

void part_gatherer::take_part(const std::string& folder, const checkpoint_part& part, folder_contents& contents) {
  if (refuse_links(folder, part)) return contents.own.push_back(part);
  auto opened = open_part(part, options_);
  // Files that share a tensor are several models: each becomes a part of its own.
  if (!opened && part.own == checkpoint_format::hf && opened.error().code == errc::duplicate_key) return;
  // So do files that do not form one model.
  if (!opened && part.is_consolidated) {
    error why = std::move(opened).error();
    why.message = "the consolidated files become separate parts: " + why.message;
    return found_.warnings.push_back(std::move(why));
  }
  contents.own.push_back(part);
  if (!opened) return refuse(std::move(opened).error());
  const std::vector<std::string>& files = (*opened)->contents().files;
  const bool is_elsewhere = !files.empty() && std::all_of(files.begin(), files.end(), [&](const std::string& file) {
    const std::string target = target_of(folder + file);
    return target != folder + file && is_claimed(target);
  });
  for (const std::string& file : files) claim(folder + file);
  if (is_elsewhere) {
    for (const std::string& file : files)
      followed_.push_back(fmt::format("{} ({})", folder + file, target_of(folder + file)));
    return;
  }
  if (part.is_model()) contents.models.push_back(opened->get());
  found_.parts.push_back({part, folder, *std::move(opened)});
}

void part_gatherer::refuse(error why) {
  (why.code == errc::unsupported ? found_.warnings : found_.problems).push_back(std::move(why));
}

void part_gatherer::take_file(const std::string& folder, const std::string& file, const folder_contents& contents) {
  const std::string name = folder + file;
  const fs::path at = top_ / name;
  std::error_code code;
  auto opened = open_checkpoint(at, options_);
  const bool may_be_copy = !contents.models.empty() && is_name_of_copy(file);
  if (!opened && (may_be_copy || !is_weight_name(file))) return unknown_.push_back(name);
  if (!opened) return refuse(std::move(opened).error());
  if (may_be_copy && shares_tensors(**opened, contents.models)) return note_copy(name, file, contents.models);
  visited_.insert(fs::canonical(at, code).string());
  const fs::path stem = is_weight_name(file) ? fs::path(file).stem() : fs::path(file);
  found_.parts.push_back(
      {{.name = folder + stem.string(), .path = at, .whole_name = name}, folder, *std::move(opened)});
}

bool part_gatherer::is_name_of_copy(const std::string& file) {
  return file.ends_with(".safetensors") || safetensors::parse_torch_model_name(file);
}

bool part_gatherer::shares_tensors(const checkpoint_reader& file, const std::vector<const checkpoint_reader*>& models) {
  const auto& tensors = file.contents().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [&](const tensor_entry& tensor) {
    return std::any_of(models.begin(), models.end(),
                       [&](const auto* model) { return model->contents().find(tensor.key) != nullptr; });
  });
}

void part_gatherer::note_copy(const std::string& name, const std::string& file,
                              const std::vector<const checkpoint_reader*>& models) {
  const bool is_said = std::any_of(models.begin(), models.end(), [&](const auto* model) {
    return std::any_of(model->warnings().begin(), model->warnings().end(),
                       [&](const error& warning) { return warning.message.find(file) != std::string::npos; });
  });
  if (!is_said) copies_.push_back(name);
}

result<gathered_parts> gather_parts(const fs::path& folder, const open_options& options) {
  return part_gatherer(folder, options).run();
}

}  // namespace shardmesh
