// SPDX-License-Identifier: Apache-2.0
// Merges the descriptions of several ranks into one.
module;
#include <fmt/format.h>
#include <plural.hpp>

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
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :held_entries;
import :own_lists;
import :rank_comparison;

namespace shardmesh::dcp {
namespace {

// Identifies an item.
using place_key = std::array<std::int64_t, 4>;
place_key key_of(const stored_range& place) {
  return {place.file, place.offset, place.length, place.transform};
}

// Names a few of the keys: "a, b, c and 4 more".
std::string key_list(std::span<const std::string> keys) {
  constexpr std::size_t most = 3;
  std::string named;
  for (const std::string& key : keys.first(std::min(keys.size(), most)))
    named += (named.empty() ? "" : ", ") + escaped(key);
  return keys.size() > most ? fmt::format("{} and {} more", named, keys.size() - most) : named;
}

// Copies entries of several catalogs into one, and renumbers files and transforms.
class catalog_merge {
 public:
  // `own`: the description of the preferred rank; null: there is none.
  catalog_merge(const merge_rules& rules, const catalog* own) : rules_(rules), comparison_(rules) {
    if (own) own_lists_ = own_lists(*own);
  }

  // Lists a rank's files. The entries of all ranks must follow.
  void add_files(const catalog& from) {
    for (const std::string& file : from.files) file_number(file);
  }

  // Adds the entries of one key, in the order of the ranks.
  void add(const std::string& key, holders all) {
    if (rules_.preferred) {
      const auto own = std::ranges::find(all, *rules_.preferred, &held_entry::rank);
      if (own != all.end()) return add_seen_by(all, *own, key);
      if (own_lists_.exclude(all.front().where())) return excluded_keys_.push_back(key);
    }
    auto conflict = comparison_.conflict_in(all);
    if (!conflict) return add_merged(all, key);
    if (!rules_.keys_at_ranks) return add_conflict(key, all, std::move(*conflict));
    for (const held_entry& entry : all) {
      const std::string at_rank = fmt::format("{}@{}", key, entry.rank);
      if (!stored_keys.contains(at_rank))
        add_seen_by(all, entry, at_rank);
      else
        problems.push_back(fail(errc::duplicate_key, "the checkpoint has another entry of this name")
                               .with_key(at_rank)
                               .with_rank(static_cast<std::int32_t>(entry.rank)));
    }
  }

  // Returns what the preferred rank's view leaves out, one line each.
  std::vector<std::string> notes() const {
    std::vector<std::string> made;
    if (!excluded_keys_.empty())
      made.push_back(fmt::format("left out {} of other ranks in lists and values that rank {} saved itself: {}",
                                 detail::counted(excluded_keys_.size(), "entry", "entries"), *rules_.preferred,
                                 key_list(excluded_keys_)));
    if (!overlapping_keys_.empty())
      made.push_back(fmt::format("left out {} of other ranks that overlap{} chunks of rank {}: {}",
                                 detail::counted(overlapping_chunks_, "chunk"), overlapping_chunks_ == 1 ? "s" : "",
                                 *rules_.preferred, key_list(overlapping_keys_)));
    return made;
  }

  // Returns a problem for each item that cannot be compared.
  const std::vector<error>& incomparable() const { return comparison_.problems(); }

  std::unordered_set<std::string> stored_keys;  // of all ranks
  catalog merged, copies;
  std::vector<error> problems, warnings;
  std::map<std::string, error, std::less<>> conflicts;

 private:
  std::int32_t file_number(const std::string& file) {
    const auto [number, added] = files_.try_emplace(file, static_cast<std::int32_t>(merged.files.size()));
    if (added) merged.files.push_back(file);
    return number->second;
  }

  stored_range renumber(const catalog& from, stored_range place) {
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
  void add_merged(const holders& all, const std::string& key) {
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
  void add_copies(const held_entry& entry, std::set<place_key>& places) {
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

  // Adds the value of one rank; for a tensor, also the boxes that only other ranks have. If other ranks have different
  // values of such a box, it becomes a chunk that cannot be read. `key`: the rank's own, or KEY@RANK.
  void add_seen_by(const holders& all, const held_entry& own, const std::string& key) {
    if (own.object) return add_object(own, key);
    begin_tensor(*own.tensor, key);
    std::set<box> boxes;
    for_each_chunk(own, [&](const held_chunk& chunk) {
      const box where = chunk.where();
      if (boxes.insert(where).second) merged.add_chunk(where, renumber(*own.from, chunk.place()));
    });
    const auto held = own.from->distribution_of(*own.tensor);
    std::map<box, held_chunk> first_of;
    std::set<box> disputed;
    std::vector<box> others;  // in the order of the ranks
    std::int64_t overlapping = 0;
    for (const held_entry& other : all) {
      if (&other == &own || !are_described_alike(own, other)) continue;
      for_each_chunk(other, [&](const held_chunk& chunk) {
        const box where = chunk.where();
        if (boxes.contains(where)) return;
        if (held && meets(*held, where)) return void(++overlapping);
        const auto [first, added] = first_of.try_emplace(where, chunk);
        if (added)
          others.push_back(where);
        else if (!comparison_.hold_the_same(*first->second.holder, first->second.place(), other, chunk.place()))
          disputed.insert(where);
      });
    }
    for (const box& where : others) {
      const held_chunk& first = first_of.at(where);
      merged.add_chunk(where, disputed.contains(where) ? stored_range() : renumber(*first.holder->from, first.place()));
    }
    if (overlapping > 0 && rules_.preferred) {  // otherwise, they are entries of their own
      overlapping_chunks_ += overlapping;
      overlapping_keys_.push_back(key);
    }
    if (disputed.empty()) return;
    error made = rank_comparison::conflict(all, different_values).with_box(*disputed.begin());
    made.key = key;
    warnings.push_back(made);
    conflicts.emplace(key, std::move(made));
  }

  static bool meets(const distribution& held, const box& where) {
    if (where.is_empty()) return false;
    bool met = false;
    held.overlapping(where, [&](const fragment&) {
      met = true;
      return false;
    });
    return met;
  }

  void add_object(const held_entry& entry, const std::string& key) {
    merged.objects.push_back(*entry.object);
    merged.objects.back().place = renumber(*entry.from, entry.object->place);
    rename(merged.objects.back(), key);
  }

  static void begin_tensor_in(catalog& into, const tensor_entry& tensor) {
    into.tensors.push_back(tensor);
    into.tensors.back().chunk_count = 0;
    into.tensors.back().first_chunk = static_cast<std::int32_t>(into.chunk_places.size());
  }

  void begin_tensor(const tensor_entry& tensor, const std::string& key) {
    begin_tensor_in(merged, tensor);
    rename(merged.tensors.back(), key);
  }

  template <class Entry>
  static void rename(Entry& entry, const std::string& key) {
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

  // Adds the entry to the catalog, but without a place to read it from. The items of all ranks are copies.
  void add_conflict(const std::string& key, const holders& all, error conflict) {
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

  const merge_rules& rules_;
  rank_comparison comparison_;
  own_lists own_lists_;                     // of the preferred rank
  std::vector<std::string> excluded_keys_;  // of other ranks, see own_lists::exclude
  std::vector<std::string> overlapping_keys_;
  std::int64_t overlapping_chunks_ = 0;  // of other ranks, in the way of the rank's own
  std::map<std::string, std::int32_t> files_, transforms_;
};

}  // namespace

metadata merge_metadata(std::vector<metadata> parts, const merge_rules& rules) {
  metadata made;
  made.extras = parts.front().extras;
  const auto rank_of = [&](std::size_t part) {
    return part < rules.ranks.size() ? rules.ranks[part] : static_cast<std::int64_t>(part);
  };
  const catalog* own = nullptr;
  for (std::size_t part = 0; part < parts.size(); ++part)
    if (rules.preferred == rank_of(part)) own = &parts[part].contents;
  catalog_merge merge(rules, own);
  merge.merged.version = made.extras.version;
  merge.merged.texts = parts.front().contents.texts;
  std::unordered_map<std::string_view, std::size_t> group_of;
  std::vector<std::pair<std::string_view, holders>> groups;
  const auto add = [&](std::string_view key, const held_entry& entry) {
    const auto [group, added] = group_of.try_emplace(key, groups.size());
    if (added) {
      groups.emplace_back(key, holders());
      merge.stored_keys.emplace(key);
    }
    groups[group->second].second.push_back(entry);
  };
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const catalog& from = parts[part].contents;
    const std::int64_t rank = rank_of(part);
    merge.add_files(from);
    for (const tensor_entry& tensor : from.tensors) add(tensor.key, {rank, &from, &tensor, nullptr});
    for (const object_entry& object : from.objects) add(object.key, {rank, &from, nullptr, &object});
  }
  for (auto& [key, all] : groups) merge.add(std::string(key), std::move(all));
  for (const metadata& part : parts) {
    made.problems.insert(made.problems.end(), part.problems.begin(), part.problems.end());
    made.warnings.insert(made.warnings.end(), part.warnings.begin(), part.warnings.end());
  }
  for (const std::vector<error>* const problems : {&std::as_const(merge.problems), &merge.incomparable()})
    made.problems.insert(made.problems.end(), problems->begin(), problems->end());
  made.warnings.insert(made.warnings.end(), merge.warnings.begin(), merge.warnings.end());
  made.conflicts = std::move(merge.conflicts);
  std::erase_if(made.extras.planner_entries, [&](const auto& named) {
    return group_of.contains(named.first);  // these are entries of another rank
  });
  made.notes = merge.notes();
  made.copies = std::move(merge.copies);
  made.copies.files = merge.merged.files;
  made.copies.transforms = merge.merged.transforms;
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh::dcp
