// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :megatron_folder;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::string_view tracker_file = "latest_checkpointed_iteration.txt";
constexpr std::string_view rank_file = "model_optim_rng.pt";

result<std::string> short_text(const fs::path& file, std::int64_t limit) {
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_file(file, limit));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// The names of the folders in `folder` that start with `beginning`, sorted.
std::vector<std::string> folders_of(const fs::path& folder, std::string_view beginning) {
  std::vector<std::string> names;
  std::error_code code, ignored;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(beginning) && at->is_directory(ignored)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The path of "iter_0000010" for the text "10\n".
result<fs::path> latest_iteration(const fs::path& folder) {
  const fs::path tracker = folder / tracker_file;
  SHARDMESH_TRY(check_inside(folder, std::string(tracker_file)));
  SHARDMESH_TRY(std::string text, short_text(tracker, 64));
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const bool is_number = !text.empty() && text.size() <= 12 &&
                         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number && text != "release")
    return fail(errc::bad_format, "does not name an iteration")
        .with_file(tracker.string())
        .with_values("a number or \"release\"", text);
  const fs::path latest = folder / (is_number ? fmt::format("iter_{:0>7}", text) : text);
  std::error_code code;
  if (fs::is_directory(latest, code)) return latest;
  const std::vector<std::string> there = folders_of(folder, "iter_");
  return fail(errc::bad_format, "names an iteration that does not exist")
      .with_file(tracker.string())
      .with_values(latest.filename().string(), there.empty() ? "none" : name_list(there));
}

bool is_zarr(const fs::path& folder) {
  const auto text = short_text(folder / "metadata.json", 4096);
  return text && text->find("\"sharded_backend\"") != std::string::npos && text->find("\"zarr\"") != std::string::npos;
}

// Returns the path to open for a folder of the older format: the file of its only rank, or the folder itself.
std::optional<fs::path> older_checkpoint_in(const fs::path& folder) {
  const std::vector<std::string> ranks = folders_of(folder, "mp_rank_");
  if (ranks.empty()) return std::nullopt;
  return ranks.size() == 1 ? folder / ranks.front() / rank_file : folder;
}

}  // namespace

result<std::optional<fs::path>> megatron_checkpoint_in(const fs::path& folder) {
  std::error_code code;
  fs::path found = folder;
  if (fs::exists(folder / tracker_file, code)) {
    SHARDMESH_TRY(found, latest_iteration(folder));
  }
  if (is_zarr(found))
    return fail(errc::unsupported, "is a checkpoint of Megatron's zarr format, which is not read")
        .with_file(found.string())
        .with_hint("load it with Megatron before 0.13, and save it with --ckpt-format torch_dist");
  if (auto older = older_checkpoint_in(found)) return older;
  return found == folder ? std::nullopt : std::optional(found);
}

}  // namespace shardmesh
