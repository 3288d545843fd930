// SPDX-License-Identifier: Apache-2.0
// The part of folder_reader for entries without metadata: one entry when the ranks agree, otherwise one per rank.
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :folder_reader;
import :same_value;

namespace shardmesh::torch_checkpointing {
namespace {

// Encodes the steps of a path from `from` on, each with its kind: one dict may have the keys 1 and "1", or None and
// "None". An index of a list and an integer key of a dict are one kind, because no container has both.
std::string with_kinds(const tree_path& where, std::size_t from) {
  std::string text;
  for (std::size_t i = from; i < where.size(); ++i) {
    const path_key& step = where[i];
    const char kind = step.is_index() || step.is_integer() ? '#' : step.is_python() ? '?' : ':';
    const std::string name = key_text(step);
    text += std::to_string(name.size());
    text += kind;
    text += name;
  }
  return text;
}

// The places of an item's described tensors: the containers above them, and their positions in lists. A rank without a
// part has None at such a position. Paths are those of the files: the metadata tells only numbers from text.
struct described_places {
  std::unordered_set<std::string> containers, positions;
  std::unordered_map<std::string, const tensor_entry*> tensors;
  explicit described_places(std::span<const tensor_entry> described) {
    for (const tensor_entry& tensor : described) {
      tree_path above;
      containers.insert("");  // the item itself: a rank without a part has an empty dict
      for (std::size_t i = 1; i < tensor.where.size(); ++i) {
        containers.insert(with_kinds(above, 0));
        above.push_back(tensor.where[i]);
        if (above.back().is_index() || above.back().is_integer()) positions.insert(with_kinds(above, 0));
      }
      tensors.emplace(with_kinds(above, 0), &tensor);
    }
  }
};

// Visits the children of a container in objects.json, with their keys. Returns false for other values.
template <std::invocable<path_key, const nlohmann::json&> Child>
bool for_each_child(const nlohmann::json& value, Child&& child) {
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      if (!child(path_key(static_cast<std::int64_t>(i)), value[i])) return false;
    return true;
  }
  if (!value.is_object()) return false;
  const auto tagged = value.contains("$dict") ? value.find("$dict") : value.find("$odict");
  if (tagged != value.end()) {
    for (const nlohmann::json& pair : *tagged)
      if (!pair[0].is_string() || !child(path_key(pair[0].get_ref<const std::string&>()), pair[1])) return false;
    return true;
  }
  for (const auto& [name, one] : value.items())
    if (name.starts_with('$') || !child(path_key(name), one)) return false;
  return true;
}

// Returns true when other entries already cover a container. On a rank that holds none of the container's tensors, the
// container is one object. On a rank that holds some, its other entries are objects of their own. `holds(path, value)`
// returns true when another rank has that value there.
template <std::invocable<const tree_path&, const nlohmann::json&> Holds>
bool is_known(const nlohmann::json& value, const tree_path& where, const described_places& places, const Holds& holds) {
  const std::string below = with_kinds(where, 1);
  if (value.is_null() && places.positions.contains(below)) return true;
  if (!places.containers.contains(below)) return holds(where, value);
  return for_each_child(value, [&](path_key key, const nlohmann::json& child) {
    tree_path inside = where;
    inside.push_back(std::move(key));
    return is_known(child, inside, places, holds);
  });
}

tree_path path_of(const tensor_entry& tensor, bool is_flat, const std::string& key) {
  return is_flat ? tree_path{key, tensor.key} : tensor.where;
}

}  // namespace

result<void> folder_reader::add_rest(const std::string& key, const std::vector<opened_part>& parts,
                                     std::span<const tensor_entry> described) {
  const described_places places(described);
  std::vector<std::string> order;
  std::vector<occurrence> containers;
  std::map<std::string, std::vector<occurrence>> entries;
  const auto meet = [&](const tree_path& where, const occurrence& one) {
    if (!one.is_tensor)
      if (const auto tensor = places.tensors.find(with_kinds(where, 1)); tensor != places.tensors.end())
        return report_object(*tensor->second, one);
    const auto [found, is_new] = entries.try_emplace(with_kinds(where, 0));
    if (is_new) order.push_back(found->first);
    found->second.push_back(one);
  };
  for (const opened_part& one : parts) {
    const catalog& contents = part(one.number).contents();
    for (std::size_t i = 0; i < contents.tensors.size(); ++i)
      if (!one.described.contains(i))
        meet(path_of(contents.tensors[i], one.is_flat, key), {one.rank, one.number, i, true});
    for (std::size_t i = 0; i < contents.objects.size(); ++i) {
      const std::string below = with_kinds(contents.objects[i].where, 1);
      if (places.positions.contains(below)) {
        SHARDMESH_TRY(const object_value value, part(one.number).read_object(i));
        if (value.kind == "none") continue;
      }
      if (places.containers.contains(below))
        containers.push_back({one.rank, one.number, i, false});
      else
        meet(contents.objects[i].where, {one.rank, one.number, i, false});
    }
  }
  const auto holds = [&](const tree_path& where, const nlohmann::json& value) {
    const auto found = entries.find(with_kinds(where, 0));
    if (found == entries.end() || found->second.front().is_tensor) return false;
    const auto held = part(found->second.front().part).read_object(found->second.front().index);
    return held && nlohmann::json::parse(held->json, nullptr, false) == value;
  };
  for (const occurrence& one : containers) {
    const tree_path& where = part(one.part).contents().objects[one.index].where;
    SHARDMESH_TRY(const object_value value, part(one.part).read_object(one.index));
    const auto parsed = nlohmann::json::parse(value.json, nullptr, false);
    if (!is_known(parsed, where, places, holds)) meet(where, one);
  }
  for (const std::string& name : order) {
    const auto entry = entries.find(name), next = std::next(entry);
    // Names below this one begin with it; no other name does, because each step's length precedes its text.
    const bool has_below = next != entries.end() && next->first.starts_with(name);
    SHARDMESH_TRY(add_occurrences(entry->second, has_below, key));
  }
  return {};
}

result<void> folder_reader::add_occurrences(std::vector<occurrence> found, bool has_below, const std::string& key) {
  bool same = false;
  if (!has_below) {
    SHARDMESH_TRY(same, are_same(found));
  }
  if (!same) {
    SHARDMESH_TRY(std::vector<occurrence> kept, filled(found, has_below));
    if (kept.empty() && has_below) return {};
    if (!kept.empty()) found = std::move(kept);
    SHARDMESH_TRY(same, are_same(found));
  }
  const tree_path where = where_of(found[0], key);
  if (same) return add_one(found[0], where);
  notes_.push_back(fmt::format("{} differs between ranks: it is shown as {}.rank_{} and so on", dotted(where),
                               dotted(where), found[0].rank));
  for (const occurrence& one : found) {
    tree_path of_rank = where;
    of_rank.push_back(fmt::format("rank_{}", one.rank));
    SHARDMESH_TRY(add_one(one, of_rank));
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

result<bool> folder_reader::are_same(const std::vector<occurrence>& found) {
  for (std::size_t i = 1; i < found.size(); ++i) {
    SHARDMESH_TRY(const bool same, is_same(found[0], found[i]));
    if (!same) return false;
  }
  return true;
}

result<std::vector<folder_reader::occurrence>> folder_reader::filled(const std::vector<occurrence>& found,
                                                                     bool has_below) {
  const bool are_some_tensors =
      std::any_of(found.begin(), found.end(), [](const occurrence& one) { return one.is_tensor; });
  std::vector<occurrence> kept;
  for (const occurrence& one : found) {
    if (!one.is_tensor) {
      const tree_path& where = part(one.part).contents().objects[one.index].where;
      const bool may_be_dict = has_below || where.size() == 1;
      const bool may_be_none = (has_below || are_some_tensors) && where.back().is_index();
      SHARDMESH_TRY(const object_value value, part(one.part).read_object(one.index));
      if (may_be_dict && torch_file::is_empty_dict(value.json)) continue;
      if (may_be_none && value.kind == "none") continue;
    }
    kept.push_back(one);
  }
  return kept;
}

result<void> folder_reader::add_one(const occurrence& one, const tree_path& where) {
  if (one.is_tensor) return add_whole_tensor(dotted(where), where, one.part, one.index);
  return add_object(dotted(where), where, one.part, one.index);
}

}  // namespace shardmesh::torch_checkpointing
