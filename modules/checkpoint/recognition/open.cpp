// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.dcp;
import shardmesh.deepspeed;
import shardmesh.gguf;
import shardmesh.nemo;
import shardmesh.npz;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;
import shardmesh.torchsnapshot;
import :folder_survey;
import :folders;
import :limited_open;
import :megatron_folder;
import :megatron_ranks;
import :model_files;
import :folder_parts;
import :rank_files;

namespace shardmesh {
namespace fs = places;
namespace {

// Opens a model's files, the ranks' files of one save, or Meta's files. Meta's files are opened only if there are no
// others, because other projects publish them beside a model of their own.
result<std::unique_ptr<checkpoint_reader>> open_torch_files(const fs::path& folder, const open_options& options) {
  SHARDMESH_TRY(const std::vector<checkpoint_part> parts, list_parts(folder));
  std::vector<checkpoint_part> found;
  for (const checkpoint_part& part : parts) {
    if (part.own == checkpoint_format::torch_files || part.ranks) found.push_back(part);
  }
  if (found.empty())
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(found),
                 [](const checkpoint_part& part) { return part.is_consolidated; });
  if (found.size() == 1) return open_part(found.front(), options);
  if (!found.empty())
    return fail(errc::bad_format, fmt::format("holds the files of several saves: {}", names_of(found)))
        .with_file(folder.string())
        .with_hint(fmt::format("open one by its name: {}", (folder / found.front().name).string()));
  return open_model_files(folder, options);
}

// Opens a folder that is a checkpoint; null when it is not one.
result<std::unique_ptr<checkpoint_reader>> open_folder(const fs::path& path, const open_options& options) {
  SHARDMESH_TRY(const auto format, format_of_folder(path));
  if (!format) return std::unique_ptr<checkpoint_reader>();
  switch (*format) {
    case checkpoint_format::dcp:
      return dcp::open(path, options);
    case checkpoint_format::torch_files:
      return open_torch_files(path, options);
    case checkpoint_format::torch_checkpointing:
      return torch_checkpointing::open(path, options);
    case checkpoint_format::torchsnapshot:
      return torchsnapshot::open(path, options);
    case checkpoint_format::deepspeed:
      return deepspeed::open(path, options);
    case checkpoint_format::npz:
      return npz::open_folder(path, options);
    default:
      return safetensors::open_folder(path, options);
  }
}

// Returns the folder of a file that describes other files. The folder is opened instead of the file.
result<fs::path> folder_of_description(const fs::path& path) {
  fs::path folder = fs::folder_of(path);
  if (!is_url(path) || folder / fs::name_of(path) == path) return folder;
  return fail(errc::unsupported, "describes other files, and the query of its URL names this file alone")
      .with_file(path.string())
      .with_hint("open the URL of its folder, without a query");
}

// True for a file of room delta, which is above this one.
bool is_delta(const fs::path& file) {
  constexpr std::string_view magic = "SHMDELTA";
  std::array<std::byte, magic.size()> head{};
  const auto source = file_pool(1).open(file);
  return source && (*source)->size_bytes() >= static_cast<std::int64_t>(head.size()) && (*source)->read(0, head) &&
         std::memcmp(head.data(), magic.data(), head.size()) == 0;
}

// Opens a file that no other format claims as a file of torch.save.
result<std::unique_ptr<checkpoint_reader>> open_torch_file(const fs::path& path, const open_options& options) {
  auto opened = torch_file::open(path, options);
  if (opened || !is_delta(path)) return opened;
  return fail(errc::unsupported, "is a delta, which is a checkpoint only together with its base")
      .with_file(path.string())
      .with_hint("apply it to its base with 'shardmesh delta apply', or call open_delta");
}

result<std::unique_ptr<checkpoint_reader>> open_file(const fs::path& path, const open_options& options) {
  const std::string name = fs::name_of(path).string();
  if (name.ends_with(".safetensors")) return safetensors::open(path, options);
  const bool is_of_items = name == torch_checkpointing::metadata_file_name;
  if (is_of_items || name == ".metadata" || safetensors::is_torch_model_index(name)) {
    SHARDMESH_TRY(const fs::path folder, folder_of_description(path));
    if (is_of_items) return torch_checkpointing::open(folder, options);
    return name == ".metadata" ? dcp::open(folder, options) : open_model_files(path, options);
  }
  if (nemo::is_nemo_name(name)) return nemo::open(path, options);
  // Decides by content: a safetensors header begins with a length and "{". A file that is neither GGUF, NumPy's, nor
  // safetensors is read as one of torch.save.
  SHARDMESH_TRY(const bool is_gguf, gguf::looks_like_gguf(path));
  if (is_gguf || name.ends_with(".gguf")) return gguf::open(path, options);
  SHARDMESH_TRY(const bool is_npz, npz::looks_like_npz(path));
  if (is_npz || is_numpy_name(name)) return npz::open(path, options);
  SHARDMESH_TRY(const bool is_safetensors, safetensors::looks_like_safetensors(path));
  return is_safetensors ? safetensors::open(path, options) : open_torch_file(path, options);
}

// The store's error if it could not examine the path; otherwise, the error of a path that does not exist.
error cannot_open(const std::error_code& code, const fs::path& path) {
  return code && code != std::errc::no_such_file_or_directory
             ? fs::failure(code, "cannot open", path)
             : fail(errc::io, "does not exist").with_file(path.string());
}

result<std::unique_ptr<checkpoint_reader>> open_any(const fs::path& path, const open_options& options) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    error why = cannot_open(code, path);
    if (is_url(path) && status.type() == fs::file_type::none) return why;
    SHARDMESH_TRY(detail::check_not_shortened(path));
    SHARDMESH_TRY(auto part, open_named_part(path, options));
    if (part) return part;
    return why;
  }
  if (!fs::is_directory(status)) return open_file(path, options);
  SHARDMESH_TRY(auto reader, open_folder(path, options));
  if (reader) return reader;
  SHARDMESH_TRY(const auto meant, megatron_checkpoint_in(path));
  if (meant && !fs::is_directory(*meant, code)) return torch_file::open(*meant, options);
  if (meant) {
    SHARDMESH_TRY(reader, open_folder(*meant, options));
    if (reader) return reader;
    if (holds_megatron_ranks(*meant)) return open_megatron_ranks(*meant, options);
  }
  const std::string below = checkpoints_below(path);
  return fail(errc::bad_format, "is not a checkpoint")
      .with_file(path.string())
      .with_values(".metadata, *.distcp or *.safetensors in the folder", "none of them")
      .with_hint(below.empty() ? "" : "it holds these: " + below + "; open one by its name");
}

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_checkpoint(const fs::path& path, const open_options& options) {
  return open_within_limits(path, options, [&](const open_options& all) { return open_any(path, all); });
}

}  // namespace shardmesh
