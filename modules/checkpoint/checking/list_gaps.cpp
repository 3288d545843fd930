// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :compared_entries;
import :list_gaps;

namespace shardmesh {
namespace {

path above(const path& where) {
  path made;
  for (std::size_t i = 0; i + 1 < where.size(); ++i) made.push_back(where[i]);
  return made;
}

}  // namespace

list_ends lists_of(const catalog& contents) {
  list_ends lists;
  const auto add = [&](const path& where) {
    path list;
    for (const path_key& step : where) {
      if (step.is_index()) {
        const auto [found, is_new] = lists.try_emplace(dotted(list), step.index());
        found->second = std::max(found->second, step.index());
      }
      list.push_back(step);
    }
  };
  for (const tensor_entry& tensor : contents.tensors) add(tensor.where);
  for (const object_entry& object : contents.objects) add(object.where);
  return lists;
}

const path* path_in_list(const diff_side& side, const diff_entry* entry) {
  if (entry == nullptr || entry->is_tensor) return nullptr;
  const path& where = side.reader.contents().objects[entry->index].where;
  return !where.empty() && where.back().is_index() ? &where : nullptr;
}

result<bool> is_gap(const diff_side& side, const diff_entry& entry, const list_ends& lists) {
  const path* const where = path_in_list(side, &entry);
  if (where == nullptr) return false;
  const auto list = lists.find(dotted(above(*where)));
  if (list == lists.end() || list->second < where->back().index()) return false;
  SHARDMESH_TRY(const object_value value, of_side(side, side.reader.read_object(entry.index)));
  return value.kind == "none";
}

}  // namespace shardmesh
