// SPDX-License-Identifier: Apache-2.0
// Merges the descriptions of several ranks into one.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :catalog_merge;
import :held_entries;

namespace shardmesh::dcp {

metadata merge_metadata(std::vector<metadata> parts, const merge_rules& rules) {
  metadata made;
  made.extras = parts.front().extras;
  const auto rank_of = [&](std::size_t part) {
    return part < rules.ranks.size() ? rules.ranks[part] : static_cast<std::int64_t>(part);
  };
  const catalog* own = nullptr;
  for (std::size_t part = 0; part < parts.size(); ++part)
    if (rules.preferred == rank_of(part)) own = &parts[part].contents;
  key_numbers group_of;
  catalog_merge merge(rules, own, group_of);
  merge.merged.version = made.extras.version;
  merge.merged.texts = parts.front().contents.texts;
  std::vector<std::pair<std::string_view, holders>> groups;
  const auto add = [&](std::string_view key, const held_entry& entry) {
    const auto [group, added] = group_of.try_emplace(key, groups.size());
    if (added) groups.emplace_back(key, holders());
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
  made.shared_chunks = std::move(merge.shared_chunks);
  made.copies = std::move(merge.copies);
  made.copies.files = merge.merged.files;
  made.copies.transforms = merge.merged.transforms;
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh::dcp
