// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :rank_files;
import :rank_reader;

namespace shardmesh {
namespace fs = places;

result<void> rank_reader::open(const open_options& options) {
  SHARDMESH_TRY(open_files(options));
  SHARDMESH_TRY(check_ranks());
  std::vector<key_entries> all = gather();
  SHARDMESH_TRY(drop_empty_containers(all));
  for (const key_entries& entries : all) {
    if (entries.tensors.empty() && entries.objects.empty()) continue;
    if (!entries.tensors.empty() && !entries.objects.empty())
      return at(fail(errc::disagreement, "is a tensor in one rank's file, but not in another's"), entries.key,
                entries.objects.front().part);
    if (entries.tensors.empty())
      SHARDMESH_TRY(merge_objects(entries));
    else
      SHARDMESH_TRY(merge_tensors(entries));
  }
  return {};
}

bool rank_reader::is_own_of_rank(const shardmesh::path& where) {
  return std::any_of(where.begin(), where.end(), [](const path_key& step) {
    if (step.is_index()) return false;
    const std::string_view name = step.name();
    return name.find("rng") != std::string_view::npos || name.find("random") != std::string_view::npos;
  });
}

error rank_reader::at(error problem, const std::string& key, std::size_t part) {
  return std::move(problem).with_key(key).with_file(file_of(part));
}

result<void> rank_reader::open_files(const open_options& options) {
  const std::int64_t ranks = std::max(group_.world_size.value_or(0), group_.files.rbegin()->first + 1);
  if (group_.world_size && ranks > *group_.world_size)
    return fail(errc::bad_format, fmt::format("its rank is not one of {}", detail::counted(*group_.world_size, "rank")))
        .with_file((path_ / group_.files.rbegin()->second).string());
  SHARDMESH_TRY(check_complete(ranks));
  for (const auto& [rank, name] : group_.files) {
    SHARDMESH_TRY(auto opened, torch_file::open_rank_file(path_ / name, options, torch_file::empty_dicts::kept));
    const auto* file = dynamic_cast<const torch_file::file_of_ranks*>(opened.get());
    meshes_.push_back(file == nullptr ? 1 : file->ranks());
    add_part(std::move(opened));
    ranks_.push_back(rank);
  }
  return {};
}

result<void> rank_reader::check_complete(std::int64_t ranks) const {
  if (static_cast<std::int64_t>(group_.files.size()) == ranks) return {};
  std::int64_t missing = 0;
  while (group_.files.contains(missing)) ++missing;
  return fail(errc::incomplete_save, fmt::format("the file of rank {} is missing", missing))
      .with_file((path_ / group_.files.begin()->second).string())
      .with_values(fmt::format("the files of {}", detail::counted(ranks, "rank")),
                   fmt::format("{}", group_.files.size()));
}

result<void> rank_reader::check_ranks() {
  const auto first = std::find_if(meshes_.begin(), meshes_.end(), [](std::int64_t ranks) { return ranks > 1; });
  for (auto other = first; other != meshes_.end(); ++other)
    if (*other > 1 && *other != *first)
      return fail(errc::incomplete_save,
                  fmt::format("is of another save than {}: its tensors are sharded over another number of ranks",
                              name_of(static_cast<std::size_t>(first - meshes_.begin()))))
          .with_file(file_of(static_cast<std::size_t>(other - meshes_.begin())))
          .with_values(fmt::format("{}", *first), fmt::format("{}", *other));
  if (first != meshes_.end() && *first > static_cast<std::int64_t>(ranks_.size())) return check_complete(*first);
  return {};
}

std::vector<key_entries> rank_reader::gather() {
  std::vector<key_entries> all;
  std::unordered_map<std::string, std::size_t> known;
  const auto of_key = [&](const std::string& key) -> key_entries& {
    const auto [place, is_new] = known.emplace(key, all.size());
    if (is_new) all.push_back({key, {}, {}});
    return all[place->second];
  };
  for (std::size_t part = 0; part < part_count(); ++part) {
    const catalog& contents = contents_of(part);
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      of_key(contents.tensors[i].key).tensors.push_back({part, i});
    for (std::size_t i = 0; i < contents.objects.size(); ++i)
      of_key(contents.objects[i].key).objects.push_back({part, i});
  }
  return all;
}

const shardmesh::path& rank_reader::where_of(const key_entries& entries) {
  if (!entries.tensors.empty()) return tensor_of(entries.tensors.front()).where;
  return contents_of(entries.objects.front().part).objects[entries.objects.front().index].where;
}

result<void> rank_reader::drop_empty_containers(std::vector<key_entries>& all) {
  std::vector<std::pair<shardmesh::path, key_entries*>> sorted;
  for (key_entries& entries : all) sorted.emplace_back(where_of(entries), &entries);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.first.begin(), a.first.end(), b.first.begin(), b.first.end());
  });
  // After sorting, an entry below a path directly follows that path.
  for (std::size_t i = 0; i + 1 < sorted.size(); ++i) {
    const auto& [where, entries] = sorted[i];
    const auto& below = sorted[i + 1].first;
    if (where.size() >= below.size() || !std::equal(where.begin(), where.end(), below.begin())) continue;
    std::vector<held_entry> kept;
    for (const held_entry& held : entries->objects) {
      SHARDMESH_TRY(const object_value value, part(held.part).read_object(held.index));
      if (!torch_file::is_empty_dict(value.json) && value.json != "[]") kept.push_back(held);
    }
    entries->objects = std::move(kept);
    const std::vector<held_entry>& values = entries->tensors.empty() ? entries->objects : entries->tensors;
    if (values.empty() || is_own_of_rank(where)) continue;
    problems_.push_back(at(
        fail(errc::disagreement,
             fmt::format("is one value here, but contains {} in another rank's file: the files are of different saves",
                         escaped(sorted[i + 1].second->key))),
        entries->key, values.front().part));
  }
  return {};
}

result<std::unique_ptr<checkpoint_reader>> open_rank_files(const fs::path& folder, const rank_file_group& group,
                                                           const open_options& options) {
  auto reader = std::make_unique<rank_reader>(folder, group);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
