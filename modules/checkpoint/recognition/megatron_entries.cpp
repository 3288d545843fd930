// SPDX-License-Identifier: Apache-2.0
// The entries of Megatron's ranks that are not parts of one tensor: entries of several stages, states, objects, and
// those outside of the model.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :megatron_cut;
import :megatron_ranks;
import :same_elements;

namespace shardmesh {

result<void> megatron_ranks_reader::check_repeated(const std::string& key, const stage& of, const first_place& first,
                                                   bool is_tensor) {
  for (std::int64_t rank = 0; rank < tensor_ranks_; ++rank) {
    const std::size_t here = part_at(rank, of.rank), there = part_at(rank, first.rank);
    const catalog& others = contents_of(there);
    const bool is_there = is_tensor ? others.find(first.key) != nullptr : others.find_object(first.key) != nullptr;
    bool same = false;
    if (is_there && is_tensor) {
      SHARDMESH_TRY(same, are_equal(here, position_of(here, key), there, position_of(there, first.key)));
    } else if (is_there) {
      SHARDMESH_TRY(same, have_same_content(this->part(here), {false, object_position_of(here, key)}, this->part(there),
                                            {false, object_position_of(there, first.key)}));
    }
    if (!same)
      return at(fail(errc::disagreement,
                     fmt::format("{} has an entry of this name as well, of other values", folders_[there]))
                    .with_values("layers of the decoder, or equal entries, in several stages", "another entry")
                    .with_hint("open the ranks' files one by one"),
                key, here);
  }
  return {};
}

result<void> megatron_ranks_reader::merge_states(const std::string& name, const stage& of, const std::string& key) {
  const std::size_t first = part_at(0, of.rank);
  std::vector<std::size_t> positions{position_of(first, key)};
  bool are_same = true;
  for (std::int64_t rank = 1; rank < tensor_ranks_; ++rank) {
    const std::size_t part = part_at(rank, of.rank);
    positions.push_back(position_of(part, key));
    SHARDMESH_TRY(const bool same, are_equal(first, positions[0], part, positions.back()));
    are_same = are_same && same;
  }
  if (are_same) return add_whole_tensor(key_of(name), path_of(name), first, positions[0]);
  for (std::int64_t rank = 0; rank < tensor_ranks_; ++rank) {
    const std::string own = fmt::format("rank_{}", rank);
    shardmesh::path where = path_of(name);
    where.push_back(own);
    SHARDMESH_TRY(add_whole_tensor(key_of(name) + "." + own, std::move(where), part_at(rank, of.rank),
                                   positions[static_cast<std::size_t>(rank)]));
  }
  return {};
}

result<void> megatron_ranks_reader::merge_object(const megatron_key& key, const stage& of, std::size_t index) {
  const std::size_t first = part_at(0, of.rank);
  const object_entry& object = contents_of(first).objects[index];
  const std::string name = whole_name(key, of.first_layer);
  const auto [known, is_new] = merged_.emplace(name, first_place{of.rank, object.key});
  if (!is_new) return check_repeated(object.key, of, known->second, false);
  bool are_same = true;
  std::vector<std::size_t> positions{index};
  for (std::int64_t rank = 1; rank < tensor_ranks_; ++rank) {
    const std::size_t part = part_at(rank, of.rank);
    positions.push_back(object_position_of(part, object.key));
    SHARDMESH_TRY(const bool same,
                  have_same_content(this->part(first), {false, index}, this->part(part), {false, positions.back()}));
    are_same = are_same && same;
  }
  if (are_same) return add_object(key_of(name), path_of(name), first, index);
  for (std::int64_t rank = 0; rank < tensor_ranks_; ++rank) {
    const std::string own = fmt::format("rank_{}", rank);
    shardmesh::path where = path_of(name);
    where.push_back(own);
    SHARDMESH_TRY(add_object(key_of(name) + "." + own, std::move(where), part_at(rank, of.rank),
                             positions[static_cast<std::size_t>(rank)]));
  }
  return {};
}

result<bool> megatron_ranks_reader::is_same_in_all(std::size_t index) {
  const std::string& key = contents_of(0).objects[index].key;
  for (std::size_t other = 1; other < part_count(); ++other) {
    const catalog& contents = contents_of(other);
    if (contents.find_object(key) == nullptr) return false;
    SHARDMESH_TRY(const bool same, have_same_content(this->part(0), {false, index}, this->part(other),
                                                     {false, object_position_of(other, key)}));
    if (!same) return false;
  }
  return true;
}

result<void> megatron_ranks_reader::add_others() {
  std::set<std::string> common;
  for (std::size_t i = 0; i < contents_of(0).objects.size(); ++i) {
    const object_entry& object = contents_of(0).objects[i];
    if (parse_megatron_key(object.key)) continue;
    SHARDMESH_TRY(const bool same, is_same_in_all(i));
    if (!same) continue;
    common.insert(object.key);
    SHARDMESH_TRY(add_object(object.key, object.where, 0, i));
  }
  std::size_t own = 0;
  for (std::size_t part = 0; part < part_count(); ++part) {
    const catalog& contents = contents_of(part);
    const auto below = [&](const shardmesh::path& where) {
      shardmesh::path made{folders_[part]};
      made.append(where);
      return made;
    };
    for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
      const tensor_entry& tensor = contents.tensors[i];
      if (parse_megatron_key(tensor.key)) continue;
      SHARDMESH_TRY(add_whole_tensor(folders_[part] + "." + tensor.key, below(tensor.where), part, i));
      ++own;
    }
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const object_entry& object = contents.objects[i];
      if (parse_megatron_key(object.key) || common.contains(object.key)) continue;
      SHARDMESH_TRY(add_object(folders_[part] + "." + object.key, below(object.where), part, i));
      ++own;
    }
  }
  if (own > 0)
    notes_.push_back(fmt::format("{} outside of the model {} to single ranks, and {} not merged: {}.KEY",
                                 detail::counted(own, "entry", "entries"), own == 1 ? "belongs" : "belong",
                                 own == 1 ? "is" : "are", folders_[0]));
  return {};
}

}  // namespace shardmesh
