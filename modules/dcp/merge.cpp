// SPDX-License-Identifier: Apache-2.0
// Merges the descriptions of several ranks into one.
module;
#include <fmt/format.h>

#include <algorithm>
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

namespace shardmesh::dcp {
namespace {

// A rank's entry under a key: exactly one of `tensor` and `object` is set.
struct held_entry {
  std::int64_t rank = 0;
  const catalog* from = nullptr;
  const tensor_entry* tensor = nullptr;
  const object_entry* object = nullptr;
};
using holders = std::vector<held_entry>;

bool are_described_alike(const held_entry& a, const held_entry& b) {
  if (a.object || b.object) return a.object && b.object;
  return a.tensor->shape == b.tensor->shape && a.tensor->type == b.tensor->type &&
         a.tensor->properties.foreign_dtype == b.tensor->properties.foreign_dtype;
}

std::string description_of(const held_entry& entry) {
  return entry.object ? "an object" : fmt::format("{} {}", name(entry.tensor->type), to_string(entry.tensor->shape));
}

// Copies entries of several catalogs into one, and renumbers files and transforms.
class catalog_merge {
 public:
  explicit catalog_merge(const merge_rules& rules) : rules_(rules) {}

  // Adds the entries of one key, in the order of the ranks.
  void add(const std::string& key, holders all) {
    const auto own = std::ranges::find(all, rules_.preferred.value_or(-1), &held_entry::rank);
    if (rules_.preferred && own != all.end()) return add_seen_by(all, *own, key);
    auto conflict = conflict_in(all);
    if (!conflict) return add_seen_by(all, all.front(), key);
    if (!rules_.keys_at_ranks) return add_conflict(key, all.front(), std::move(*conflict));
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

  std::unordered_set<std::string> stored_keys;  // of all ranks
  catalog merged;
  std::vector<error> problems, warnings;
  std::map<std::string, error, std::less<>> conflicts;

 private:
  stored_range renumber(const catalog& from, stored_range place) {
    if (place.file >= 0) {
      const std::string& file = from.files[static_cast<std::size_t>(place.file)];
      const auto [number, added] = files_.try_emplace(file, static_cast<std::int32_t>(merged.files.size()));
      if (added) merged.files.push_back(file);
      place.file = number->second;
    }
    if (place.transform == 0) return place;
    const std::string& transform = from.transforms[static_cast<std::size_t>(place.transform)];
    if (transform.empty()) return place;
    const auto [found, added] = transforms_.try_emplace(transform, static_cast<std::int32_t>(merged.transforms.size()));
    if (added) merged.transforms.push_back(transform);
    place.transform = found->second;
    return place;
  }

  // Adds the value of one rank; for a tensor, also the chunks that only other ranks have. `key`: its own, or KEY@RANK.
  void add_seen_by(const holders& all, const held_entry& own, const std::string& key) {
    if (own.object) {
      merged.objects.push_back(*own.object);
      merged.objects.back().place = renumber(*own.from, own.object->place);
      return rename(merged.objects.back(), key);
    }
    begin_tensor(*own.tensor, key);
    std::set<box> boxes;
    add_chunks(own, boxes);
    for (const held_entry& other : all)
      if (&other != &own && are_described_alike(own, other)) add_chunks(other, boxes);
  }

  void begin_tensor(const tensor_entry& tensor, const std::string& key) {
    merged.tensors.push_back(tensor);
    merged.tensors.back().chunk_count = 0;
    merged.tensors.back().first_chunk = static_cast<std::int32_t>(merged.chunk_places.size());
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

  // Adds each box once: equal boxes are one chunk.
  void add_chunks(const held_entry& entry, std::set<box>& boxes) {
    const tensor_entry& tensor = *entry.tensor;
    for (std::int32_t c = tensor.first_chunk; c < tensor.first_chunk + tensor.chunk_count; ++c) {
      const box where = entry.from->chunk_box(tensor, c);
      if (boxes.insert(where).second)
        merged.add_chunk(where, renumber(*entry.from, entry.from->chunk_places[static_cast<std::size_t>(c)]));
    }
  }

  // Adds the entry to the catalog, but without a place to read it from.
  void add_conflict(const std::string& key, const held_entry& first, error conflict) {
    warnings.push_back(conflict);
    conflicts.emplace(key, std::move(conflict));
    if (first.object) {
      merged.objects.push_back(*first.object);
      merged.objects.back().place = {};
      merged.objects.back().place.file = -1;
      return;
    }
    begin_tensor(*first.tensor, key);
    stored_range nowhere;
    nowhere.file = -1;
    merged.add_chunk(box::whole(first.tensor->shape), nowhere);
  }

  // Returns the ranks' disagreement; nothing when they all have one value.
  std::optional<error> conflict_in(const holders& all) {
    for (const held_entry& entry : all)
      if (!are_described_alike(all.front(), entry))
        return conflict(all, "saved different entries under this key")
            .with_values(description_of(all.front()), description_of(entry));
    if (all.front().object) {
      for (const held_entry& entry : all)
        if (!hold_the_same(all.front(), all.front().object->place, entry, entry.object->place))
          return conflict(all, "saved different values under this key");
      return std::nullopt;
    }
    std::map<box, std::pair<const held_entry*, std::int32_t>> first_of;
    for (const held_entry& entry : all)
      for (std::int32_t c = entry.tensor->first_chunk; c < entry.tensor->first_chunk + entry.tensor->chunk_count; ++c) {
        const auto [first, added] = first_of.try_emplace(entry.from->chunk_box(*entry.tensor, c), &entry, c);
        if (added) continue;
        const auto& [other, chunk] = first->second;
        if (!hold_the_same(*other, other->from->chunk_places[static_cast<std::size_t>(chunk)], entry,
                           entry.from->chunk_places[static_cast<std::size_t>(c)]))
          return conflict(all, "saved different values under this key").with_box(first->first);
      }
    return std::nullopt;
  }

  static error conflict(const holders& all, std::string_view what) {
    std::vector<std::int64_t> ranks;
    for (const held_entry& entry : all) ranks.push_back(entry.rank);
    error made = fail(errc::disagreement, fmt::format("the ranks {}", what))
                     .with_hint(
                         "read it as one rank (--rank N, rank=N), or list it as KEY@RANK of each rank"
                         " (--keys-at-ranks, keys_at_ranks=True)");
    for (const std::int64_t rank : ranks) made.ranks.push_back(static_cast<std::int32_t>(rank));
    if (all.front().object)
      made.key = all.front().object->key;
    else
      made.key = all.front().tensor->key;
    return made;
  }

  // Items that cannot be compared are a problem of their own, not a difference.
  bool hold_the_same(const held_entry& a, const stored_range& at, const held_entry& b, const stored_range& other) {
    if (&a == &b || at.file < 0 || other.file < 0 || !rules_.are_equal) return true;
    if (a.from->transforms[static_cast<std::size_t>(at.transform)] !=
        b.from->transforms[static_cast<std::size_t>(other.transform)])
      return false;
    auto same = rules_.are_equal(a.from->files[static_cast<std::size_t>(at.file)], at,
                                 b.from->files[static_cast<std::size_t>(other.file)], other);
    if (same) return *same;
    error problem = std::move(same).error();
    problem.key = b.object ? b.object->key : b.tensor->key;
    if (std::ranges::find(problems, problem) == problems.end()) problems.push_back(std::move(problem));
    return true;
  }

  const merge_rules& rules_;
  std::map<std::string, std::int32_t> files_, transforms_;
};

}  // namespace

metadata merge_metadata(std::vector<metadata> parts, const merge_rules& rules) {
  metadata made;
  made.extras = parts.front().extras;
  catalog_merge merge(rules);
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
    const std::int64_t rank = part < rules.ranks.size() ? rules.ranks[part] : static_cast<std::int64_t>(part);
    for (const tensor_entry& tensor : from.tensors) add(tensor.key, {rank, &from, &tensor, nullptr});
    for (const object_entry& object : from.objects) add(object.key, {rank, &from, nullptr, &object});
  }
  for (auto& [key, all] : groups) merge.add(std::string(key), std::move(all));
  for (const metadata& part : parts) {
    made.problems.insert(made.problems.end(), part.problems.begin(), part.problems.end());
    made.warnings.insert(made.warnings.end(), part.warnings.begin(), part.warnings.end());
  }
  made.problems.insert(made.problems.end(), merge.problems.begin(), merge.problems.end());
  made.warnings.insert(made.warnings.end(), merge.warnings.begin(), merge.warnings.end());
  made.conflicts = std::move(merge.conflicts);
  std::erase_if(made.extras.planner_entries, [&](const auto& named) {
    return group_of.contains(named.first);  // these are entries of another rank
  });
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh::dcp
