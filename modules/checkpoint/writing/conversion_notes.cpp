// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :conversion_notes;

namespace shardmesh {

std::optional<std::string> note_of_dead_ends(checkpoint_reader& reader, const conversion& work) {
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < work.tensors.size(); ++i)
    if (work.tensors[i].archive) whole.push_back(i);
  if (whole.empty()) return std::nullopt;
  const auto known = torch_file::wrapping_tensors::open(reader);
  std::vector<std::string> names;
  for (const std::size_t i : whole) {
    if (known && known->components_of(work.sources[i])) continue;
    const tensor_entry& stored = reader.contents().tensors[work.sources[i]];
    names.push_back(fmt::format("{} (a {})", work.tensors[i].key, stored.opaque_kind));
  }
  if (names.empty()) return std::nullopt;
  return fmt::format("{} copied as stored, and no command can convert them from there (keep the source): {}",
                     detail::counted(names.size(), "tensor is", "tensors are"), name_list(names));
}

std::optional<std::string> note_of_flat_names(const catalog& stored, const conversion& work) {
  std::vector<std::string> flat;
  const auto look = [&](const std::string& key, const path& was, const std::string& old) {
    if (key != old && was.size() > 1) flat.push_back(key);
  };
  for (std::size_t i = 0; i < work.tensors.size(); ++i) {
    const tensor_entry& entry = stored.tensors[work.sources[i]];
    look(work.tensors[i].key, entry.where, entry.key);
  }
  for (std::size_t i = 0; i < work.objects.size(); ++i) {
    const object_entry& entry = stored.objects[work.object_sources[i]];
    look(work.objects[i].key, entry.where, entry.key);
  }
  if (flat.empty()) return std::nullopt;
  return fmt::format("renamed, and no longer nested: {} (--nest splits such names at dots)", name_list(flat));
}

}  // namespace shardmesh
