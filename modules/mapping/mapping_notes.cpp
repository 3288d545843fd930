// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :mapping_notes;

namespace shardmesh {

std::vector<std::string> notes_of(const bound_mapping& bound, const catalog& source) {
  std::vector<std::string> notes;
  const auto computed = static_cast<std::int64_t>(bound.tensors.size()) - bound.renamed_tensors;
  notes.push_back(fmt::format("mapped from {} to {}: {} renamed, {} computed", bound.mapping.left, bound.mapping.right,
                              detail::counted(bound.renamed_tensors, "tensor"), computed));
  if (bound.filled_elements > 0)
    notes.push_back(
        fmt::format("{} that the mapping fills with zeros", detail::counted(bound.filled_elements, "element")));
  if (bound.dropped_elements > 0)
    notes.push_back(fmt::format("{} of filler not used", detail::counted(bound.dropped_elements, "element")));
  if (bound.followed_entries > 0)
    notes.push_back(fmt::format("{} of optimizer state follow{} the parameters",
                                detail::counted(bound.followed_entries, "entry", "entries"),
                                bound.followed_entries == 1 ? "s" : ""));
  if (!bound.kept.empty())
    notes.push_back(fmt::format("{} of an optimizer unchanged: no parameter in the name",
                                detail::counted(static_cast<std::int64_t>(bound.kept.size()), "tensor")));
  for (const unused_tensor& one : bound.unused)
    notes.push_back(fmt::format("{} is not used: {}", escaped(source.tensors[one.source].key), one.reason));
  for (const std::size_t object : bound.unused_objects)
    notes.push_back(fmt::format("{} is not used: its parameter is not used", escaped(source.objects[object].key)));
  return notes;
}

}  // namespace shardmesh
