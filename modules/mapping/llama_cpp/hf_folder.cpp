// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
module shardmesh.mapping;

import :hf_folder;

namespace shardmesh::llama_cpp {
namespace {

// The largest known file, the tokenizer.json of Gemma 3, has 33 MB.
constexpr std::int64_t most_file_bytes = std::int64_t{64} << 20;
// Real files have fewer than 10 levels.
constexpr std::size_t most_levels = 64;

std::filesystem::path folder_of_file(const std::filesystem::path& file) {
  std::filesystem::path folder = places::folder_of(file);
  return folder.empty() ? std::filesystem::path(".") : folder;
}

}  // namespace

hf_folder::hf_folder(std::filesystem::path config_file)
    : config_file_(std::move(config_file)), folder_(folder_of_file(config_file_)) {}

std::string hf_folder::model_name() const {
  std::error_code code;
  const std::filesystem::path whole = places::canonical(folder_, code);
  if (code) return {};
  // The cache has models--ORGANISATION--MODEL/snapshots/COMMIT.
  const std::filesystem::path above = places::folder_of(whole);
  if (places::name_of(above) != "snapshots") return places::name_of(whole).string();
  const std::string repository = places::name_of(places::folder_of(above)).string();
  const std::size_t dashes = repository.rfind("--");
  return dashes == std::string::npos ? repository : repository.substr(dashes + 2);
}

std::string hf_folder::path_of(std::string_view name) const {
  return printable_url((folder_ / std::filesystem::path(name)).string());
}

std::string hf_folder::config_name() const {
  return places::name_of(config_file_).string();
}

result<bool> hf_folder::has(std::string_view name) const {
  SHARDMESH_TRY(const places::file_status there, places::checked_status(folder_ / std::filesystem::path(name)));
  return places::is_regular_file(there);
}

result<std::optional<std::string>> hf_folder::read(std::string_view name) const {
  const std::filesystem::path file = folder_ / std::filesystem::path(name);
  SHARDMESH_TRY(const bool is_there, has(name));
  if (!is_there) return std::optional<std::string>();
  std::error_code code;
  // The mapping has followed a link of the configuration, of which only numbers and names are carried.
  if (name != config_name() && places::is_symlink(file, code) && !detail::is_safe_link(file, folder_))
    return fail(errc::unsafe_path, "the file is a link that leads out of the folder")
        .with_file(path_of(name))
        .with_hint("replace the link by the file");
  SHARDMESH_TRY(const auto bytes, read_file(file, most_file_bytes));
  return std::optional(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

result<std::optional<std::string>> hf_folder::read_json(std::string_view name) const {
  SHARDMESH_TRY(auto text, read(name));
  if (text)
    if (auto checked = check_json_depth(*text, most_levels); !checked)
      return std::move(checked).error().with_file(path_of(name));
  return text;
}

}  // namespace shardmesh::llama_cpp
