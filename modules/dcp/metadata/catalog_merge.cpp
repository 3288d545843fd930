// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :catalog_merge;
import :held_entries;
import :own_lists;
import :rank_comparison;

namespace shardmesh::dcp {
namespace {

void begin_tensor_in(catalog& into, const tensor_entry& tensor) {
  into.tensors.push_back(tensor);
  into.tensors.back().chunk_count = 0;
  into.tensors.back().first_chunk = static_cast<std::int32_t>(into.chunk_places.size());
}

template <class Entry>
void rename(Entry& entry, const std::string& key) {
  if (entry.key == key) return;
  const bool is_named = !entry.where.empty() && !entry.where.back().is_index() && !entry.where.back().is_integer();
  if (is_named) {
    std::string last(entry.where.back().name());
    last += key.substr(entry.key.size());
    entry.where.pop_back();
    entry.where.push_back(std::move(last));
  } else {  // an index or an integer cannot have a suffix
    entry.where = path{key};
  }
  entry.key = key;
}

}  // namespace

catalog_merge::catalog_merge(const merge_rules& rules, const catalog* own, const key_numbers& stored)
    : rules_(rules), stored_(stored), comparison_(rules) {
  if (own) own_lists_ = own_lists(*own);
}

catalog_merge::place_key catalog_merge::key_of(const stored_range& place) {
  return {place.file, place.offset, place.length, place.transform};
}

void catalog_merge::add_files(const catalog& from) {
  for (const std::string& file : from.files) file_number(file);
}

void catalog_merge::add(const std::string& key, holders all) {
  if (rules_.preferred) {
    const auto own = std::ranges::find(all, *rules_.preferred, &held_entry::rank);
    if (own != all.end()) return add_seen_by(all, *own, key);
    if (own_lists_.exclude(all.front().where())) return excluded_keys_.push_back(key);
  }
  auto conflict = comparison_.conflict_in(all);
  if (!conflict) return add_merged(all, key);
  if (!rules_.keys_at_ranks) return add_conflict(key, all, std::move(*conflict));
  const std::size_t first_tensor = merged.tensors.size();
  for (const held_entry& entry : all) {
    const std::string at_rank = fmt::format("{}@{}", key, entry.rank);
    if (!stored_.contains(at_rank))
      add_seen_by(all, entry, at_rank);
    else
      problems.push_back(fail(errc::duplicate_key, "the checkpoint has another entry of this name")
                             .with_key(at_rank)
                             .with_rank(static_cast<std::int32_t>(entry.rank))
                             .with_hint("read the checkpoint as one rank (--rank N, rank=N)"));
  }
  note_shared_chunks(first_tensor);
}

std::int32_t catalog_merge::file_number(const std::string& file) {
  const auto [number, added] = files_.try_emplace(file, static_cast<std::int32_t>(merged.files.size()));
  if (added) merged.files.push_back(file);
  return number->second;
}

stored_range catalog_merge::renumber(const catalog& from, stored_range place) {
  if (place.file >= 0) place.file = file_number(from.files[static_cast<std::size_t>(place.file)]);
  if (place.transform == 0) return place;
  const std::string& transform = from.transforms[static_cast<std::size_t>(place.transform)];
  if (transform.empty()) return place;
  const auto [found, added] = transforms_.try_emplace(transform, static_cast<std::int32_t>(merged.transforms.size()));
  if (added) merged.transforms.push_back(transform);
  place.transform = found->second;
  return place;
}

// Adds the value that all ranks share: equal boxes and objects are listed once, and their copies are kept apart.
void catalog_merge::add_merged(const holders& all, const std::string& key) {
  std::set<place_key> places;
  std::set<box> boxes;
  if (all.front().object) {
    add_object(all.front(), key);
    places.insert(key_of(merged.objects.back().place));
  } else {
    begin_tensor(*all.front().tensor, key);
    for (const held_entry& entry : all)
      for_each_chunk(entry, [&](const held_chunk& chunk) {
        if (!boxes.insert(chunk.where()).second) return;
        merged.add_chunk(chunk.where(), renumber(*entry.from, chunk.place()));
        places.insert(key_of(merged.chunk_places.back()));
      });
  }
  for (const held_entry& entry : all) add_copies(entry, places);
}

// Adds the items of an entry whose places are new to the copies.
void catalog_merge::add_copies(const held_entry& entry, std::set<place_key>& places) {
  const auto is_new = [&](const stored_range& place) { return places.insert(key_of(place)).second; };
  if (entry.object) {
    const stored_range place = renumber(*entry.from, entry.object->place);
    if (!is_new(place)) return;
    copies.objects.push_back(*entry.object);
    copies.objects.back().place = place;
    return;
  }
  bool is_begun = false;
  for_each_chunk(entry, [&](const held_chunk& chunk) {
    const stored_range place = renumber(*entry.from, chunk.place());
    if (!is_new(place)) return;
    if (!std::exchange(is_begun, true)) begin_tensor_in(copies, *entry.tensor);
    copies.add_chunk(chunk.where(), place);
  });
}

void catalog_merge::add_object(const held_entry& entry, const std::string& key) {
  merged.objects.push_back(*entry.object);
  merged.objects.back().place = renumber(*entry.from, entry.object->place);
  rename(merged.objects.back(), key);
}

void catalog_merge::begin_tensor(const tensor_entry& tensor, const std::string& key) {
  begin_tensor_in(merged, tensor);
  rename(merged.tensors.back(), key);
}

// Adds the entry to the catalog, but without a place to read it from. The items of all ranks are copies.
void catalog_merge::add_conflict(const std::string& key, const holders& all, error conflict) {
  std::set<place_key> places;
  for (const held_entry& entry : all) add_copies(entry, places);
  const held_entry& first = all.front();
  warnings.push_back(conflict);
  conflicts.emplace(key, std::move(conflict));
  if (first.object) {
    merged.objects.push_back(*first.object);
    merged.objects.back().place = stored_range();
    return;
  }
  begin_tensor(*first.tensor, key);
  merged.add_chunk(box::whole(first.tensor->shape), stored_range());
}

void catalog_merge::note_shared_chunks(std::size_t first_tensor) {
  std::set<std::pair<place_key, box>> listed;
  for (const tensor_entry& tensor : std::span(merged.tensors).subspan(first_tensor))
    for (std::int32_t i = tensor.first_chunk; i < tensor.first_chunk + tensor.chunk_count; ++i) {
      const stored_range& place = merged.chunk_places[static_cast<std::size_t>(i)];
      if (place.file >= 0 && !listed.emplace(key_of(place), merged.chunk_box(tensor, i)).second)
        shared_chunks.push_back(i);
    }
}

}  // namespace shardmesh::dcp
