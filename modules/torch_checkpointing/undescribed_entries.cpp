// SPDX-License-Identifier: Apache-2.0
// folder_reader's entries that the metadata says nothing of: one where the ranks agree, else one for each.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :folder_reader;
import :same_value;

namespace shardmesh::torch_checkpointing {
namespace {

// Positions of lists at or above the tensors that the metadata describes: None there is where a rank has no part.
std::unordered_set<std::string> list_positions(const item_metadata& item) {
  std::unordered_set<std::string> positions;
  for (const tensor_metadata& tensor : item.tensors) {
    tree_path above;
    for (const path_key& step : tensor.where) {
      above.push_back(step);
      if (step.is_index()) positions.insert(joined(above, 0));
    }
  }
  return positions;
}

tree_path path_of(const tensor_entry& tensor, bool is_flat, const std::string& key) {
  return is_flat ? tree_path{key, tensor.key} : tensor.where;
}

}  // namespace

result<void> folder_reader::add_rest(const std::string& key, const std::vector<opened_part>& parts,
                                     const item_metadata* item) {
  const std::unordered_set<std::string> positions = item ? list_positions(*item) : std::unordered_set<std::string>();
  std::vector<std::string> order;
  std::map<std::string, std::vector<occurrence>> entries;
  const auto meet = [&](const tree_path& where, const occurrence& one) {
    const auto [found, is_new] = entries.try_emplace(joined(where, 0));
    if (is_new) order.push_back(found->first);
    found->second.push_back(one);
  };
  for (const opened_part& one : parts) {
    const catalog& contents = part(one.number).contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      if (!one.described.contains(i))
        meet(path_of(contents.tensors[i], one.is_flat, key), {one.rank, one.number, i, true});
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      if (!positions.empty() && positions.contains(joined(contents.objects[i].where, 1))) {
        SHARDMESH_TRY(const object_value value, part(one.number).read_object(i));
        if (value.kind == "none") continue;
      }
      meet(contents.objects[i].where, {one.rank, one.number, i, false});
    }
  }
  for (const std::string& name : order) {
    const std::vector<occurrence>& found = entries.at(name);
    bool same = true;
    for (std::size_t i = 1; i < found.size() && same; ++i) {
      SHARDMESH_TRY(same, is_same(found[0], found[i]));
    }
    const tree_path where = where_of(found[0], key);
    if (same) {
      SHARDMESH_CHECK(add_one(found[0], where));
      continue;
    }
    notes_.push_back(fmt::format("{} differs between ranks: it is seen as {}.rank_{} and so on", dotted(where),
                                 dotted(where), found[0].rank));
    for (const occurrence& one : found) {
      tree_path of_rank = where;
      of_rank.push_back(fmt::format("rank_{}", one.rank));
      SHARDMESH_CHECK(add_one(one, of_rank));
    }
  }
  return {};
}

tree_path folder_reader::where_of(const occurrence& one, const std::string& key) {
  const catalog& contents = part(one.part).contents();
  if (!one.is_tensor) return contents.objects[one.index].where;
  return path_of(contents.tensors[one.index], contents.format == checkpoint_format::safetensors, key);
}

result<bool> folder_reader::is_same(const occurrence& a, const occurrence& b) {
  if (a.is_tensor != b.is_tensor) return false;
  checkpoint_reader &left = part(a.part), &right = part(b.part);
  if (!a.is_tensor) return same_object(left, a.index, right, b.index);
  return same_tensor(left, left.contents().tensors[a.index], right, right.contents().tensors[b.index]);
}

result<void> folder_reader::add_one(const occurrence& one, const tree_path& where) {
  if (one.is_tensor) return add_whole_tensor(dotted(where), where, one.part, one.index);
  return add_object(dotted(where), where, one.part, one.index);
}

}  // namespace shardmesh::torch_checkpointing
