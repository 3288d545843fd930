// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
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

namespace shardmesh {
namespace fs = places;
namespace {

constexpr int deepest = 64;  // levels of nested folders

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

// "a/b/" of "a/b/c.pt"
std::string folder_of(const std::string& name) {
  return name.substr(0, name.rfind('/') + 1);
}

class gathering {
 public:
  gathering(fs::path top, const open_options& options) : top_(std::move(top)), options_(options) {
    std::error_code ignored;
    real_top_ = fs::canonical(top_, ignored);
  }

  result<gathered_parts> run() {
    SHARDMESH_TRY(look_in("", 0));
    follow_links();
    for (const std::string& name : nameless_)
      if (!is_claimed(name) && !is_visited(name)) take_file(folder_of(name), name.substr(folder_of(name).size()), {});
    finish_names();
    name_the_rest();
    return std::move(found_);
  }

 private:
  struct folder_contents {
    std::vector<const checkpoint_reader*> models;  // models made of files in it
    std::vector<checkpoint_part> own;              // all checkpoints made of files in it
  };

  bool is_claimed(const std::string& name) const { return claimed_.contains(name); }
  // True when files of a part lie below the folder.
  bool holds_claimed(const std::string& folder) const {
    const auto next = claimed_.lower_bound(folder);
    return next != claimed_.end() && next->starts_with(folder);
  }

  // `folder` is "" or ends with "/".
  fs::path path_of(const std::string& folder) const {
    return folder.empty() ? top_ : top_ / folder.substr(0, folder.size() - 1);
  }

  result<void> look_in(const std::string& folder, int depth) {
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

  void look_below(const std::string& folder, int depth) {
    if (auto done = look_in(folder, depth + 1); !done) found_.problems.push_back(std::move(done).error());
  }

  static bool is_name_of_own(const folder_contents& contents, const std::string& name) {
    // An opened model knows its own files: an index may leave some out.
    const bool is_described = !contents.models.empty() && is_name_of_copy(name);
    return std::any_of(contents.own.begin(), contents.own.end(), [&](const checkpoint_part& part) {
      return !(is_described && part.is_model()) && is_name_of(part, name);
    });
  }

  // Takes the checkpoints that are made of files in the folder itself.
  result<void> take_own(const std::string& folder, folder_contents& contents) {
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

  void take_part(const std::string& folder, const checkpoint_part& part, folder_contents& contents) {
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

  // The path to which links lead from `name`, relative to the folder; `name` itself if they lead outside.
  std::string target_of(const std::string& name) const {
    const link_end leads_to = follow_link(top_ / name, real_top_);
    return leads_to.is_inside ? leads_to.real.lexically_relative(real_top_).string() : name;
  }
  void claim(const std::string& name) {
    claimed_.insert(name);
    claimed_.insert(target_of(name));
  }
  bool is_visited(const std::string& name) const { return visited_.contains((real_top_ / name).string()); }

  // Refuses links out of the folder among the files that a part would be read from.
  bool refuse_links(const std::string& folder, const checkpoint_part& part) {
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

  void refuse_link(const std::string& name) {
    claimed_.insert(name);
    found_.problems.push_back(
        fail(errc::unsafe_path, "a symbolic link leads out of the folder")
            .with_file((top_ / name).string())
            .with_hint("open the folder's parts by their names, or replace the link by the file"));
  }

  // An unsupported format is a warning, damage is a problem.
  void refuse(error why) {
    (why.code == errc::unsupported ? found_.warnings : found_.problems).push_back(std::move(why));
  }

  void take_file(const std::string& folder, const std::string& file, const folder_contents& contents) {
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

  // True for variants and parts of a model, and for its copies in torch.save files.
  static bool is_name_of_copy(const std::string& file) {
    return file.ends_with(".safetensors") || safetensors::parse_torch_model_name(file);
  }
  static bool shares_tensors(const checkpoint_reader& file, const std::vector<const checkpoint_reader*>& models) {
    const auto& tensors = file.contents().tensors;
    return std::any_of(tensors.begin(), tensors.end(), [&](const tensor_entry& tensor) {
      return std::any_of(models.begin(), models.end(),
                         [&](const auto* model) { return model->contents().find(tensor.key) != nullptr; });
    });
  }

  void note_copy(const std::string& name, const std::string& file,
                 const std::vector<const checkpoint_reader*>& models) {
    const bool is_said = std::any_of(models.begin(), models.end(), [&](const auto* model) {
      return std::any_of(model->warnings().begin(), model->warnings().end(),
                         [&](const error& warning) { return warning.message.find(file) != std::string::npos; });
    });
    if (!is_said) copies_.push_back(name);
  }

  // Runs last, so that the target of links is taken once, and under its own name if it has one in the folder.
  void follow_links() {
    while (!links_.empty()) {
      std::vector<std::string> links = std::exchange(links_, {});
      std::sort(links.begin(), links.end());
      for (const std::string& name : links) follow(name);
    }
  }

  void follow(const std::string& name) {
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

  static int depth_of(const std::string& name) { return static_cast<int>(std::count(name.begin(), name.end(), '/')); }

  void broken(const std::string& name) {
    if (!is_weight_name(name)) return unknown_.push_back(name + " (a link that leads to nothing)");
    found_.problems.push_back(
        fail(errc::bad_format, "a symbolic link leads to nothing").with_file((top_ / name).string()));
  }

  void finish_names() {
    std::vector<checkpoint_part> parts;
    for (gathered_part& one : found_.parts) parts.push_back(std::move(one.part));
    make_names_unique(parts);
    for (std::size_t i = 0; i < parts.size(); ++i) found_.parts[i].part = std::move(parts[i]);
    std::sort(found_.parts.begin(), found_.parts.end(),
              [](const gathered_part& a, const gathered_part& b) { return a.part.name < b.part.name; });
  }

  void name_the_rest() {
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

  const fs::path top_;
  fs::path real_top_;
  const open_options& options_;
  gathered_parts found_;
  std::set<std::string> claimed_;   // files that belong to parts
  std::set<std::string> visited_;   // canonical paths: folders that were searched, files that are parts
  std::set<std::string> nameless_;  // files recognised as checkpoints only by their first bytes; links may lead to them
  std::vector<std::string> links_, beside_, unknown_, copies_, followed_;
};

}  // namespace

result<gathered_parts> gather_parts(const fs::path& folder, const open_options& options) {
  return gathering(folder, options).run();
}

}  // namespace shardmesh
