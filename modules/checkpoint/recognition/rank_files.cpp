// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :rank_files;
import :same_elements;

namespace shardmesh {
namespace fs = places;
namespace {

// An entry of a rank's file: the part that the file became, and the index in its catalog.
struct held_entry {
  std::size_t part = 0, index = 0;
};

// All entries with one key, over all ranks.
struct key_entries {
  std::string key;
  std::vector<held_entry> tensors, objects;
};

// True for random states, which are each rank's own.
bool is_own_of_rank(const path& where) {
  return std::any_of(where.begin(), where.end(), [](const path_key& step) {
    if (step.is_index()) return false;
    const std::string_view name = step.name();
    return name.find("rng") != std::string_view::npos || name.find("random") != std::string_view::npos;
  });
}

class rank_reader final : public composed_reader {
 public:
  rank_reader(const fs::path& folder, rank_file_group group)
      : composed_reader(checkpoint_format::torch_files, folder), group_(std::move(group)) {}

  result<void> open(const open_options& options) {
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

 private:
  const catalog& contents_of(std::size_t part) { return this->part(part).contents(); }
  const tensor_entry& tensor_of(const held_entry& held) { return contents_of(held.part).tensors[held.index]; }
  std::string file_of(std::size_t part) { return this->part(part).path().string(); }
  error at(error problem, const std::string& key, std::size_t part) {
    return std::move(problem).with_key(key).with_file(file_of(part));
  }

  result<void> open_files(const open_options& options) {
    const std::int64_t ranks = std::max(group_.world_size.value_or(0), group_.files.rbegin()->first + 1);
    if (group_.world_size && ranks > *group_.world_size)
      return fail(errc::bad_format,
                  fmt::format("its rank is not one of {}", detail::counted(*group_.world_size, "rank")))
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

  result<void> check_complete(std::int64_t ranks) const {
    if (static_cast<std::int64_t>(group_.files.size()) == ranks) return {};
    std::int64_t missing = 0;
    while (group_.files.contains(missing)) ++missing;
    return fail(errc::incomplete_save, fmt::format("the file of rank {} is missing", missing))
        .with_file((path_ / group_.files.begin()->second).string())
        .with_values(fmt::format("the files of {}", detail::counted(ranks, "rank")),
                     fmt::format("{}", group_.files.size()));
  }

  // Ranks that share a tensor know how many ranks share it. All must come from one save, and all must be present. A
  // rank may hold no shared tensor.
  result<void> check_ranks() {
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

  // Groups entries by key, in the order of their first occurrence.
  std::vector<key_entries> gather() {
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

  const shardmesh::path& where_of(const key_entries& entries) {
    if (!entries.tensors.empty()) return tensor_of(entries.tensors.front()).where;
    return contents_of(entries.objects.front().part).objects[entries.objects.front().index].where;
  }

  // Drops a rank's empty dict or list where other ranks have entries below it. A rank with another value there belongs
  // to a different save.
  result<void> drop_empty_containers(std::vector<key_entries>& all) {
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
          fail(
              errc::disagreement,
              fmt::format("is one value here, but contains {} in another rank's file: the files are of different saves",
                          escaped(sorted[i + 1].second->key))),
          entries->key, values.front().part));
    }
    return {};
  }

  result<void> merge_tensors(const key_entries& entries) {
    const tensor_entry& first = tensor_of(entries.tensors.front());
    SHARDMESH_TRY(const bool is_same, are_same_tensors(entries));
    if (!is_same && is_own_of_rank(first.where)) return add_each(entries.tensors, true);
    if (!first.opaque_type.empty())
      return add_whole_tensor(first.key, first.where, entries.tensors.front().part, entries.tensors.front().index);
    SHARDMESH_TRY(add_tensor(first));
    std::set<box> known;
    for (const held_entry& held : entries.tensors) {
      const tensor_entry& tensor = tensor_of(held);
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        const box where = contents_of(held.part).chunk_box(tensor, chunk);
        if (!known.insert(where).second) continue;  // a replica
        SHARDMESH_TRY(add_chunk(where, {held.part, held.index, chunk, 0, where.sizes}));
      }
    }
    return {};
  }

  // True when all ranks hold equal elements for each box. Unequal dtypes or shapes are an error; for random states they
  // mean "false".
  result<bool> are_same_tensors(const key_entries& entries) {
    const tensor_entry& first = tensor_of(entries.tensors.front());
    const bool is_own = is_own_of_rank(first.where);
    std::map<box, std::shared_ptr<const opened_chunk>> known;
    for (const held_entry& held : entries.tensors) {
      const tensor_entry& tensor = tensor_of(held);
      if (tensor.type != first.type || tensor.shape != first.shape || tensor.opaque_type != first.opaque_type ||
          tensor.opaque_kind != first.opaque_kind) {
        if (is_own) return false;
        return at(differing(first, tensor), tensor.key, held.part);
      }
      if (first.opaque_type.starts_with("torch.distributed.")) continue;  // each rank has its own term of a reduction
      if (!first.opaque_type.empty()) {
        SHARDMESH_TRY(const bool same, have_same_content(entries.tensors.front(), held, true));
        if (same) continue;
        if (!is_own) problems_.push_back(values_differ(entries, held));
        return false;
      }
      for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
        auto opened = part(held.part).open_chunk(tensor, chunk);
        if (!opened) return std::move(opened).error();
        const auto [before, is_new] = known.try_emplace(contents_of(held.part).chunk_box(tensor, chunk), *opened);
        if (is_new) continue;
        auto same = have_same_elements(*before->second, **opened);
        if (!same) return at(std::move(same).error(), tensor.key, held.part);
        if (*same) continue;
        if (!is_own) problems_.push_back(values_differ(entries, held));
        return false;
      }
    }
    return true;
  }

  error values_differ(const key_entries& entries, const held_entry& held) {
    return at(fail(errc::disagreement, fmt::format("its values differ from those of {}: the files are of different "
                                                   "saves, or the tensor is sharded without metadata",
                                                   name_of(entries.tensors.front().part))),
              entries.key, held.part);
  }

  result<bool> have_same_content(const held_entry& a, const held_entry& b, bool are_tensors) {
    if (a.part == b.part) return true;
    SHARDMESH_TRY(const auto one, part(a.part).content_of({are_tensors, a.index}));
    SHARDMESH_TRY(const auto other, part(b.part).content_of({are_tensors, b.index}));
    return one == other;
  }

  static error differing(const tensor_entry& a, const tensor_entry& b) {
    if (a.opaque_type != b.opaque_type || a.opaque_kind != b.opaque_kind)
      return fail(errc::disagreement, "is of a different kind than in the first rank's file");
    if (a.type != b.type)
      return fail(errc::dtype_mismatch, "has a different dtype than in the first rank's file")
          .with_values(std::string(name(a.type)), std::string(name(b.type)));
    return fail(errc::shape_mismatch, "has a different shape than in the first rank's file")
        .with_values(to_string(a.shape), to_string(b.shape));
  }

  std::string name_of(std::size_t part) { return this->part(part).path().filename().string(); }

  result<void> merge_objects(const key_entries& entries) {
    const held_entry& first = entries.objects.front();
    const object_entry& entry = contents_of(first.part).objects[first.index];
    for (const held_entry& held : entries.objects) {
      SHARDMESH_TRY(const bool same, are_same_objects(first, held));
      if (same) continue;
      if (is_own_of_rank(entry.where)) return add_each(entries.objects, false);
      problems_.push_back(
          at(fail(errc::disagreement, fmt::format("its value differs from that of {}", name_of(first.part))), entry.key,
             held.part)
              .with_hint("check that the files belong to one save"));
      break;
    }
    return add_object(entry.key, entry.where, first.part, first.index);
  }

  result<bool> are_same_objects(const held_entry& a, const held_entry& b) {
    if (a.part == b.part) return true;
    SHARDMESH_TRY(const object_value left, part(a.part).read_object(a.index));
    SHARDMESH_TRY(const object_value right, part(b.part).read_object(b.index));
    if (left.kind != right.kind || left.type != right.type || left.json != right.json) return false;
    if (!torch_file::has_unknown_values(left.json)) return true;
    return have_same_content(a, b, false);
  }

  // Adds an entry for each rank.
  result<void> add_each(const std::vector<held_entry>& entries, bool is_tensor) {
    for (const held_entry& held : entries) {
      const std::string rank = fmt::format("rank_{}", ranks_[held.part]);
      const std::string& key = is_tensor ? tensor_of(held).key : contents_of(held.part).objects[held.index].key;
      shardmesh::path where = is_tensor ? tensor_of(held).where : contents_of(held.part).objects[held.index].where;
      where.push_back(rank);
      SHARDMESH_TRY(is_tensor ? add_whole_tensor(key + "." + rank, std::move(where), held.part, held.index)
                              : add_object(key + "." + rank, std::move(where), held.part, held.index));
    }
    return {};
  }

  rank_file_group group_;
  std::vector<std::int64_t> ranks_, meshes_;  // per part: its rank, and the number of ranks that share its tensors
};

}  // namespace

result<std::unique_ptr<checkpoint_reader>> open_rank_files(const fs::path& folder, const rank_file_group& group,
                                                           const open_options& options) {
  auto reader = std::make_unique<rank_reader>(folder, group);
  SHARDMESH_TRY(reader->open(options));
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh
