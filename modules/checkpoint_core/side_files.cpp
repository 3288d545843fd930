// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint_core;

import :name_list;

namespace shardmesh {
namespace fs = places;
namespace {

// The size of the largest side file that is copied.
constexpr std::int64_t max_side_file_bytes = std::int64_t{1} << 30;

// True for files that belong to a format itself, whether or not this checkpoint refers to them.
bool is_checkpoint_file(std::string_view name) {
  return name.ends_with(".distcp") || name.ends_with(".safetensors.objects.json") ||
         (name.ends_with(".json") && (name.find(".safetensors.index.") != std::string_view::npos ||
                                      name.find(".bin.index.") != std::string_view::npos)) ||
         (name.starts_with("__") && name.ends_with(".metadata"));
}

bool is_known_kind(const fs::path& file) {
  constexpr auto extensions =
      std::to_array<std::string_view>({".json", ".jsonl", ".yaml", ".yml", ".toml", ".txt", ".md", ".model", ".jinja",
                                       ".py", ".tiktoken", ".bpe", ".vocab", ".spm", ".merges"});
  constexpr auto beginnings = std::to_array<std::string_view>({"tokenizer", "LICENSE", "README", "NOTICE"});
  const std::string name = file.filename().string(), extension = file.extension().string();
  return name == "common.pt" || name == "meta.pt" ||
         std::find(extensions.begin(), extensions.end(), extension) != extensions.end() ||
         std::any_of(beginnings.begin(), beginnings.end(), [&](auto begin) { return name.starts_with(begin); });
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end == folder.end();
}

}  // namespace

namespace detail {

bool is_safe_link(const fs::path& link, const fs::path& folder) {
  std::error_code code;
  const fs::path target = fs::canonical(link, code);
  if (code) return false;
  const fs::path home = fs::canonical(folder, code);
  if (code) return false;
  const fs::path snapshots = home.parent_path();
  return lies_in(target, home) ||
         (snapshots.filename() == "snapshots" && lies_in(target, snapshots.parent_path() / "blobs"));
}

}  // namespace detail

namespace {

// Collects a folder's files other than the checkpoint's own. Searches subfolders that hold files of the checkpoint.
class side_search {
 public:
  side_search(const fs::path& folder, const catalog& contents) : top_(folder), contents_(contents) {
    for (const std::string& file : contents.files) {
      own_.insert(file);
      for (std::size_t at = file.find('/'); at != std::string::npos; at = file.find('/', at + 1))
        own_folders_.insert(file.substr(0, at));
    }
  }

  // `below` is the subfolder's prefix: "", or "unet/".
  result<void> look_in(const fs::path& folder, const std::string& below) {
    std::error_code code;
    for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
      const std::string name = at->path().filename().string();
      if (name.starts_with('.') || own_.contains(below + name) || is_description(name)) continue;
      std::error_code ignored;
      if (at->is_directory(ignored) && own_folders_.contains(below + name))
        SHARDMESH_TRY(look_in(at->path(), below + name + "/"));
      else
        judge(*at, below + name, !below.empty());
    }
    if (code) return fs::failure(code, "cannot list", folder);
    return {};
  }

  side_files found() && { return std::move(found_); }

 private:
  // True for files that describe the checkpoint and hold no entry.
  bool is_description(std::string_view name) const {
    const checkpoint_format format = contents_.format;
    return is_checkpoint_file(name) ||
           (name == "objects.json" && format == checkpoint_format::hf && !contents_.objects.empty()) ||
           (name == "metadata.pkl" && format == checkpoint_format::torch_checkpointing) ||
           ((name == "latest" || name == "latest_universal") && format == checkpoint_format::deepspeed);
  }

  void judge(const fs::directory_entry& at, const std::string& name, bool is_below) {
    std::error_code ignored;
    const fs::file_status status = at.status(ignored);
    if (fs::is_directory(status))
      found_.left.push_back(name + "/");
    else if (at.is_symlink(ignored) && !detail::is_safe_link(at.path(), top_))
      found_.left.push_back(name + " (a link that leads elsewhere)");
    else if (!fs::is_regular_file(status))
      found_.left.push_back(name + " (not a regular file)");
    else if (is_below || !is_known_kind(name) || name == "objects.json" || escaped(name) != name)
      found_.left.push_back(name);
    else if (const std::uintmax_t size = fs::file_size(at.path(), ignored); ignored)
      found_.left.push_back(
          fmt::format("{} ({})", name, fs::failure(ignored, "cannot be examined", at.path()).message));
    else if (size > static_cast<std::uintmax_t>(max_side_file_bytes))
      found_.left.push_back(fmt::format("{} (larger than {})", name, human_bytes(max_side_file_bytes)));
    else
      found_.files.push_back({name, at.path()});
  }

  const fs::path& top_;
  const catalog& contents_;
  std::set<std::string, std::less<>> own_, own_folders_;
  side_files found_;
};

}  // namespace

result<side_files> find_side_files(const fs::path& folder, const catalog& contents) {
  side_search search(folder, contents);
  SHARDMESH_TRY(search.look_in(folder, ""));
  side_files found = std::move(search).found();
  std::sort(found.files.begin(), found.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(found.left.begin(), found.left.end());
  return found;
}

std::string not_copied_note(std::span<const std::string> names) {
  return "not copied: " + name_list(names);
}

result<void> copy_side_files(staged_output& output, std::span<const side_file> files,
                             std::vector<checksum_range>& ranges) {
  constexpr std::int64_t piece_bytes = 1 << 20;
  file_pool pool(1);
  std::vector<std::byte> buffer;
  for (const side_file& file : files) {
    SHARDMESH_TRY(const auto source, pool.open(file.from));
    const std::int64_t size = source->size_bytes();
    if (size > max_side_file_bytes)
      return fail(errc::bad_format, "is too large to be copied beside a checkpoint")
          .with_file(file.from.string())
          .with_values(fmt::format("at most {} bytes", max_side_file_bytes), fmt::format("{}", size));
    SHARDMESH_TRY(const std::int32_t number, output.add_file(file.name));
    xxh3_stream sum;
    for (std::int64_t at = 0; at < size; at += piece_bytes) {
      buffer.resize(static_cast<std::size_t>(std::min(piece_bytes, size - at)));
      SHARDMESH_TRY(source->read(at, buffer));
      SHARDMESH_TRY(output.write(number, at, buffer));
      sum.update(buffer);
    }
    ranges.push_back({file.name, 0, size, to_hex(sum.digest())});
  }
  return {};
}

}  // namespace shardmesh
