// SPDX-License-Identifier: Apache-2.0
// One description from those of several ranks.
module;
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.dcp;

namespace shardmesh::dcp {
namespace {

// Copies entries of several catalogs into one, with files and transforms numbered anew.
class catalog_merge {
 public:
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

  // The chunks of one tensor from every rank that has it; equal boxes are one chunk.
  void add_tensor(std::span<const std::pair<const catalog*, const tensor_entry*>> holders,
                  std::vector<error>& problems) {
    const tensor_entry& first = *holders.front().second;
    merged.tensors.push_back(first);
    merged.tensors.back().chunk_count = 0;
    merged.tensors.back().first_chunk = static_cast<std::int32_t>(merged.chunk_places.size());
    std::set<box> boxes;
    for (const auto& [from, tensor] : holders) {
      if (tensor->shape != first.shape || tensor->type != first.type) {
        problems.push_back(fail(errc::disagreement, "ranks describe the tensor differently")
                               .with_key(first.key)
                               .with_values(fmt::format("{} {}", name(first.type), to_string(first.shape)),
                                            fmt::format("{} {}", name(tensor->type), to_string(tensor->shape))));
        continue;
      }
      for (std::int32_t c = tensor->first_chunk; c < tensor->first_chunk + tensor->chunk_count; ++c) {
        const box where = from->chunk_box(*tensor, c);
        if (boxes.insert(where).second)
          merged.add_chunk(where, renumber(*from, from->chunk_places[static_cast<std::size_t>(c)]));
      }
    }
  }

  catalog merged;

 private:
  std::map<std::string, std::int32_t> files_, transforms_;
};

}  // namespace

metadata merge_metadata(std::vector<metadata> parts) {
  metadata made;
  made.extras = parts.front().extras;
  catalog_merge merge;
  merge.merged.version = made.extras.version;
  merge.merged.texts = parts.front().contents.texts;
  std::unordered_map<std::string_view, std::size_t> group_of;
  std::vector<std::vector<std::pair<const catalog*, const tensor_entry*>>> groups;
  for (const metadata& part : parts)
    for (const tensor_entry& tensor : part.contents.tensors) {
      const auto [group, added] = group_of.try_emplace(tensor.key, groups.size());
      if (added) groups.emplace_back();
      groups[group->second].emplace_back(&part.contents, &tensor);
    }
  for (const auto& holders : groups) merge.add_tensor(holders, made.problems);
  std::set<std::string_view> objects;
  for (const metadata& part : parts) {
    for (const object_entry& object : part.contents.objects)
      if (objects.insert(object.key).second) {
        merge.merged.objects.push_back(object);
        merge.merged.objects.back().place = merge.renumber(part.contents, object.place);
      }
    made.problems.insert(made.problems.end(), part.problems.begin(), part.problems.end());
    made.warnings.insert(made.warnings.end(), part.warnings.begin(), part.warnings.end());
  }
  std::erase_if(made.extras.planner_entries, [&](const auto& named) {
    return group_of.contains(named.first) || objects.contains(named.first);  // another rank's entries
  });
  made.contents = std::move(merge.merged);
  return made;
}

}  // namespace shardmesh::dcp
