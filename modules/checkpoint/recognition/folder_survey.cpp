// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.gguf;
import shardmesh.nemo;
import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.storage;
import :folder_survey;

namespace shardmesh {
namespace fs = places;
namespace {

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](auto end) { return name.ends_with(end); });
}

// True for settings, texts, pictures, code, and files that DeepSpeed, Megatron, Meta, and copying tools leave behind.
bool holds_no_tensors(std::string_view name) {
  static constexpr auto endings = std::to_array<std::string_view>(
      {".json", ".jsonl", ".yaml", ".yml",  ".toml",     ".txt", ".md",    ".rst", ".model",  ".jinja", ".py",
       ".sh",   ".ini",   ".cfg",  ".conf", ".tiktoken", ".bpe", ".vocab", ".spm", ".merges", ".log",   ".csv",
       ".tsv",  ".html",  ".png",  ".jpg",  ".jpeg",     ".gif", ".svg",   ".pdf", ".err",    ".out",   ".sha256"});
  static constexpr auto beginnings =
      std::to_array<std::string_view>({"LICENSE", "README", "NOTICE", "events.out.tfevents"});
  return name == "latest" || name == "latest_universal" || name == "checklist.chk" || name == ".DS_Store" ||
         name.starts_with(".git") || ends_with_any(name, endings) ||
         std::any_of(beginnings.begin(), beginnings.end(), [&](auto begin) { return name.starts_with(begin); });
}

// True for hidden folders in which tools keep their own data.
bool is_of_tools(std::string_view name) {
  static constexpr auto known =
      std::to_array<std::string_view>({".git", ".hg", ".cache", ".ipynb_checkpoints", ".vscode", ".idea"});
  return std::find(known.begin(), known.end(), name) != known.end();
}

// True for an archive, a pickle that states its protocol, a GGUF file, an array of NumPy, and a safetensors header.
bool looks_like_checkpoint(const fs::path& file) {
  file_pool pool(1);
  const auto source = pool.open(file);
  std::array<std::byte, 9> head{};
  if (!source || (*source)->size_bytes() < 9 || !(*source)->read(0, head)) return false;
  const auto is_gguf = gguf::looks_like_gguf(file);
  return looks_like_zip(**source) || npz::begins_array(head) ||
         (head[0] == std::byte{0x80} && head[1] <= std::byte{5}) || head[8] == std::byte{'{'} || (is_gguf && *is_gguf);
}

// True for the objects of the safetensors file beside it: they are read with that file.
bool is_companion(const fs::path& folder, const std::string& name) {
  constexpr std::string_view ending = ".objects.json";
  std::error_code code;
  return name.ends_with(ending) &&
         fs::exists(folder / (name.substr(0, name.size() - ending.size()) + ".safetensors"), code);
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

bool is_weight_name(std::string_view name) {
  static constexpr auto endings = std::to_array<std::string_view>(
      {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".safetensors", ".gguf", ".npz", ".nemo", ".distcp"});
  return ends_with_any(name, endings);
}

bool is_numpy_name(std::string_view name) {
  return name.ends_with(".npz") || name.ends_with(".npy");
}

std::optional<checkpoint_format> format_of_file(const fs::path& file) {
  static constexpr auto torch_endings =
      std::to_array<std::string_view>({".pt", ".pth", ".ckpt", ".bin", ".pt2", ".pkl"});
  const std::string name = file.filename().string();
  if (ends_with_any(name, torch_endings)) return checkpoint_format::torch_file;
  if (is_numpy_name(name)) return checkpoint_format::npz;
  if (nemo::is_nemo_name(name)) return checkpoint_format::nemo;
  if (name.starts_with('.') || holds_no_tensors(name) || !looks_like_checkpoint(file)) return std::nullopt;
  file_pool pool(1);
  const auto source = pool.open(file);
  if (!source) return std::nullopt;
  if (const auto is_npz = npz::looks_like_npz(file); is_npz && *is_npz) return checkpoint_format::npz;
  if (looks_like_zip(**source)) {
    const auto directory = zip_directory::read(**source);
    const bool is_saved =
        directory && std::any_of(directory->records().begin(), directory->records().end(),
                                 [](const auto& record) { return record.name.ends_with("data.pkl"); });
    return is_saved ? std::optional(checkpoint_format::torch_file) : std::nullopt;
  }
  if (const auto is_gguf = gguf::looks_like_gguf(file); is_gguf && *is_gguf) return checkpoint_format::gguf;
  const auto is_safetensors = safetensors::looks_like_safetensors(file);
  if (!is_safetensors) return std::nullopt;
  return *is_safetensors ? checkpoint_format::safetensors : checkpoint_format::torch_file;
}

result<folder_survey> survey_folder(const fs::path& folder, function_ref<bool(const std::string& name)> is_claimed) {
  folder_survey found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    // Files that are still being written are reported with the leftovers.
    if (is_claimed(name) || is_companion(folder, name)) continue;
    if (name.starts_with('.') && name.find(".shardmesh-tmp-") != std::string::npos) continue;
    std::error_code ignored;
    const bool is_hidden = name.starts_with('.');
    if (at->is_symlink(ignored))
      found.links.push_back(name);
    else if (at->is_directory(ignored) && !is_hidden)
      found.folders.push_back(name);
    else if (at->is_directory(ignored))
      is_of_tools(name) ? found.beside.push_back(name + "/") : found.unknown.push_back(name + "/ (a hidden folder)");
    else if (!at->is_regular_file(ignored))
      found.unknown.push_back(name + " (not a regular file)");
    else if (holds_no_tensors(name))
      found.beside.push_back(name);
    else if (!is_hidden && (is_weight_name(name) || looks_like_checkpoint(at->path())))
      found.files.push_back(name);
    else
      found.unknown.push_back(name);
  }
  if (code) return fs::failure(code, "cannot list", folder);
  for (auto* names : {&found.files, &found.folders, &found.links, &found.beside, &found.unknown})
    std::sort(names->begin(), names->end());
  return found;
}

link_end follow_link(const fs::path& link, const fs::path& top) {
  std::error_code code;
  link_end found{fs::canonical(link, code)};
  if (code) return {};
  const fs::path snapshots = top.parent_path();
  found.is_inside = lies_in(found.real, top) ||
                    (snapshots.filename() == "snapshots" && lies_in(found.real, snapshots.parent_path() / "blobs"));
  return found;
}

}  // namespace shardmesh
