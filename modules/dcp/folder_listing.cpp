// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :file_times;
import :flattened;
import :folder_listing;
import :item_comparison;

namespace shardmesh::dcp {
namespace fs = places;
namespace {

// Returns the entries of these keys alone, as a metadata file of their own; nothing when the file is not written as
// PyTorch writes it.
result<std::optional<std::vector<std::byte>>> excerpt_of(const fs::path& file, std::span<const std::string> keys) {
  static constexpr std::array<std::string_view, 4> dicts{"state_dict_metadata", "planner_data", "storage_data",
                                                         strides_attribute};
  file_pool pool(1);
  SHARDMESH_TRY(const auto source, pool.open(file));
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) { return source->read(offset, out); };
  return pickle::excerpt(read, source->size_bytes(), {dicts, keys});
}

// Reads one metadata file. All files of a checkpoint together stay below the limit of one.
result<metadata> read_file_of_metadata(const fs::path& file, std::span<const std::string> only_keys,
                                       read_budget& budget, std::int64_t& left) {
  std::error_code code;
  const auto size = static_cast<std::int64_t>(fs::file_size(file, code));
  if (!code && size > left)
    return beyond_limit("the metadata is too long", budget.limits().description_bytes).with_file(file.string());
  if (!only_keys.empty()) {
    SHARDMESH_TRY(auto part, excerpt_of(file, only_keys));
    // An error may come from our excerpt: reading the whole file decides.
    if (part)
      if (auto read = parse_metadata(std::move(*part), file.string(), &budget); read)
        return left -= size, read->names.clear(), read;
  }
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_file(file, left));
  left -= static_cast<std::int64_t>(bytes.size());
  return parse_metadata(std::move(bytes), file.string(), &budget);
}

// Returns the keys as the files spell them: KEY@RANK is KEY there.
std::vector<std::string> stored_keys(const open_options& options) {
  std::vector<std::string> keys = options.only_keys;
  if (!options.keys_at_ranks) return keys;
  for (const std::string& key : options.only_keys)
    if (const auto at = key.rfind('@'); at != std::string::npos) keys.push_back(key.substr(0, at));
  return keys;
}

// Merges the descriptions of all ranks into one.
metadata merge_ranks(const fs::path& folder, std::vector<metadata> parts, std::vector<std::int64_t> ranks,
                     const open_options& options) {
  std::map<std::string, std::int32_t> numbers;
  std::vector<std::string> names;
  for (const metadata& part : parts)
    for (const std::string& name : part.contents.files)
      if (numbers.try_emplace(name, static_cast<std::int32_t>(names.size())).second) names.push_back(name);
  folder_files files(folder, names, options.pool(), file_scope::sibling_folders);
  item_comparison comparison;
  const auto source_of = [&](const std::string& file, const stored_range& place) {
    return files.section(numbers.at(file), place.offset, place.length);
  };
  merge_rules rules{.ranks = std::move(ranks), .keys_at_ranks = options.keys_at_ranks};
  if (options.rank) rules.preferred = *options.rank;
  rules.are_equal = [&](const std::string& file, const stored_range& place, const std::string& other_file,
                        const stored_range& other) -> result<bool> {
    SHARDMESH_TRY(const auto one, source_of(file, place));
    SHARDMESH_TRY(const auto another, source_of(other_file, other));
    return comparison.are_equal(*one, *another);
  };
  std::map<std::string, pickle::used_names, std::less<>> used;
  for (metadata& part : parts) used.merge(part.names);
  metadata made = merge_metadata(std::move(parts), rules);
  made.names = std::move(used);
  for (error& warning : made.warnings)
    if (warning.file.empty()) warning.file = folder.string();
  for (auto& [key, conflict] : made.conflicts) conflict.file = folder.string();
  return made;
}

// Returns whether a rank was writing its metadata: "__N.metadata.tmp".
bool is_temporary_of_rank(std::string_view file) {
  constexpr std::string_view ending = ".metadata.tmp";
  if (!file.starts_with("__") || !file.ends_with(ending)) return false;
  const std::string_view digits = file.substr(2, file.size() - ending.size() - 2);
  return !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The warning of ranks' metadata files (at least one) beside a .metadata.
error superseded(const fs::path& folder, const std::map<std::int64_t, std::string>& rank_metadata) {
  if (rank_metadata.size() == 1)
    return fail(errc::incomplete_save, "is not used: .metadata takes precedence")
        .with_file((folder / rank_metadata.begin()->second).string());
  std::vector<std::string> names;
  for (const auto& [rank, name] : rank_metadata) names.push_back(name);
  return fail(errc::incomplete_save,
              fmt::format("{} are not used, because .metadata takes precedence: {}",
                          detail::counted(names.size(), "metadata file of a rank", "metadata files of ranks"),
                          name_list(names)))
      .with_file(folder.string());
}

}  // namespace

result<folder_listing> list_folder(const fs::path& folder) {
  folder_listing found;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string file = at->path().filename().string();
    if (file == ".metadata")
      found.has_metadata = true;
    else if (file == ".metadata.tmp")
      found.has_temporary = true;
    else if (file.ends_with(".distcp"))
      found.items.insert(file);
    else if (is_temporary_of_rank(file))
      found.rank_temporaries.insert(file);
    else if (file.starts_with("__") && file.ends_with(".metadata")) {
      const std::string digits = file.substr(2, file.size() - 11);
      const bool is_number = !digits.empty() && digits.size() < 10 &&
                             std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (is_number && (digits == "0" || digits.front() != '0'))  // "__01.metadata" beside "__1.metadata" is no rank's
        found.rank_metadata[std::stoll(digits)] = file;
      else
        found.odd_metadata.insert(file);
    }
  }
  if (code) return fs::failure(code, "cannot list", folder);
  if (found.has_metadata || !found.rank_metadata.empty()) return found;
  if (found.has_temporary || !found.rank_temporaries.empty())
    return fail(errc::incomplete_save, "incomplete save: the metadata was being written when it was interrupted")
        .with_file((folder / (found.has_temporary ? ".metadata.tmp" : *found.rank_temporaries.begin())).string());
  return fail(errc::incomplete_save, fmt::format("incomplete save: {} .distcp file{} without metadata",
                                                 found.items.size(), found.items.size() == 1 ? "" : "s"))
      .with_file((folder / ".metadata").string());
}

result<metadata> read_metadata(const fs::path& folder, const folder_listing& listing, const open_options& options,
                               read_budget& budget) {
  std::int64_t left = budget.limits().description_bytes;
  if (listing.has_metadata) return read_file_of_metadata(folder / ".metadata", options.only_keys, budget, left);
  const std::vector<std::string> keys = stored_keys(options);
  std::vector<metadata> parts;
  std::vector<std::int64_t> ranks;
  for (const auto& [rank, file] : listing.rank_metadata) {
    SHARDMESH_TRY(metadata part, read_file_of_metadata(folder / file, keys, budget, left));
    parts.push_back(std::move(part));
    ranks.push_back(rank);
  }
  return merge_ranks(folder, std::move(parts), std::move(ranks), options);
}

void note_oddities(const fs::path& folder, const folder_listing& listing, metadata& description) {
  const auto file = [&](std::string_view name) { return (folder / name).string(); };
  if (listing.has_metadata && listing.has_temporary)
    description.problems.push_back(
        fail(errc::incomplete_save, "an overwrite was interrupted: a new .metadata was being written")
            .with_file(file(".metadata.tmp"))
            .with_hint("the items may be a mixture of two saves"));
  if (!listing.has_metadata)
    for (const std::string& temporary : listing.rank_temporaries)
      description.problems.push_back(
          fail(errc::incomplete_save, "a save was interrupted: the metadata of this rank was being written")
              .with_file(file(temporary))
              .with_hint("the items may be a mixture of two saves"));
  if (listing.has_metadata && !listing.rank_metadata.empty())
    description.warnings.push_back(superseded(folder, listing.rank_metadata));
  for (const std::string& name : listing.odd_metadata)
    description.warnings.push_back(
        fail(errc::incomplete_save, "is not used: its name is not that of a rank's metadata").with_file(file(name)));
  std::set<std::string> unreferenced = listing.items;
  for (const std::string& referenced : description.contents.files) unreferenced.erase(referenced);
  for (const std::string& item : unreferenced) {
    std::error_code code;
    // A rank that had nothing left to write leaves an empty file, which is normal.
    if (fs::file_size(folder / item, code) > 0 && !code)
      description.warnings.push_back(
          fail(errc::incomplete_save, "nothing refers to this file: a leftover of another save").with_file(file(item)));
  }
  if (!listing.has_metadata) return;
  const std::vector<std::string> rewritten = files_rewritten_after(folder, ".metadata", description.contents.files);
  if (rewritten.empty()) return;
  const std::size_t others = rewritten.size() - 1;
  const std::string more = others == 0 ? "" : fmt::format(", like {} more file{}", others, others == 1 ? "" : "s");
  description.warnings.push_back(
      fail(errc::incomplete_save,
           fmt::format("is newer than .metadata{}: an overwrite may have been interrupted", more))
          .with_file(file(rewritten.front())));
}

}  // namespace shardmesh::dcp
