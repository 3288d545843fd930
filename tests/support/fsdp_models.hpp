// SPDX-License-Identifier: Apache-2.0
// Golden FSDP models in our types. It imports, so it is the last header that a test includes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <golden.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp_golden.hpp"
import shardmesh.fsdp;

namespace fsdp_models {

using golden::to_extents;

inline shardmesh::dtype type_of(const fsdp_golden::stored& tensor) {
  using shardmesh::dtype;
  static const std::map<std::string, dtype> types{
      {"BF16", dtype::bfloat16}, {"F32", dtype::float32}, {"F64", dtype::float64}, {"I64", dtype::int64}};
  return types.at(tensor.type);  // throws for a type that is new to these tests
}

inline shardmesh::tensor_view view_of(fsdp_golden::stored& tensor) {
  const shardmesh::extents sizes(tensor.shape);
  return {tensor.bytes.data(), type_of(tensor), {}, sizes, shardmesh::contiguous_strides(sizes)};
}

/// The flat parameter of a unit.
inline shardmesh::flat_parameter to_flat_parameter(const nlohmann::json& u) {
  using namespace shardmesh;
  std::vector<parameter_info> parameters;
  const dtype type = parse_dtype(u.at("dtype").get<std::string>()).value();
  // The file's modules require gradients, so every flat parameter does; the tests compare the flag.
  for (std::size_t i = 0; i < u.at("fqns").size(); ++i)
    parameters.push_back(
        {u["fqns"][i].get<std::string>(), to_extents(u["shapes"][i]), to_extents(u["strides"][i]), type, true});
  std::vector<shared_parameter_info> shared;
  for (const auto& s : u.at("shared_param_infos"))
    shared.push_back({joined_key(s[1].get<std::string>(), s[0].get<std::string>()),
                      joined_key(s[3].get<std::string>(), s[2].get<std::string>())});
  return flat_parameter::make(std::move(parameters), std::move(shared),
                              {.group_size = u.at("group_size").get<std::int32_t>(),
                               .alignment = u.at("aligned_numel").get<std::int64_t>(),
                               .sharded = u.at("uses_sharded_strategy").get<bool>()})
      .value();
}

/// The state dict key of a unit's parameter, with the case's prefix.
inline std::string key_of(const nlohmann::json& c, const nlohmann::json& u, const std::string& fqn) {
  return c.value("prefix", "") + shardmesh::clean_key(shardmesh::joined_key(u.at("module").get<std::string>(), fqn));
}

/// The group of ranks that share the units' flat parameters.
inline shardmesh::shard_group group_of(const nlohmann::json& c) {
  using namespace shardmesh;
  const auto world = c.at("world").get<std::int32_t>();
  if (!c.contains("mesh") || c["mesh"].size() < 2) return shard_group::world(world);
  return shard_group::along(device_mesh::make(to_extents(c["mesh"])).value(), c["mesh"].size() - 1, world).value();
}

/// The keys of the full state dict, without the case's prefix.
inline std::vector<std::string> keys_of(const nlohmann::json& c) {
  std::vector<std::string> keys;
  const std::string prefix = c.value("prefix", "");
  for (const auto& entry : c.at("state_dicts")[0]["ranks"][0].at("entries"))
    keys.push_back(entry["key"].get<std::string>().substr(prefix.size()));
  return keys;
}

/// One rank's part of a case: copies of its shards and buffers, and the model over them.
class rank_memory {
 public:
  rank_memory(const nlohmann::json& c, std::map<std::string, fsdp_golden::stored> values, std::int32_t rank)
      : values_(std::move(values)) {
    const std::string prefix = c.value("prefix", "");
    std::set<std::string> of_units;
    for (const auto& u : c.at("units")) {
      if (!u.at("has_params").get<bool>()) continue;
      shardmesh::flat_parameter flat = to_flat_parameter(u);
      for (const auto& p : flat.parameters()) of_units.insert(key_of(c, u, p.fqn));
      for (const auto& s : flat.shared()) of_units.insert(key_of(c, u, s.fqn));
      auto& shard = values_.at(u["ranks"][static_cast<std::size_t>(rank)]["flat"].get<std::string>());
      model.units.push_back({u.at("raw_module").get<std::string>(), std::move(flat), group_of(c), view_of(shard)});
    }
    model.order = keys_of(c);
    model.key_prefix = prefix;
    for (const std::string& key : model.order) {
      if (of_units.contains(prefix + key)) continue;
      shardmesh::fsdp_tensor tensor{key, view_of(values_.at("full." + prefix + key))};
      for (const auto& module : c.value("ignored", nlohmann::json::array()))
        tensor.ignored |= key.starts_with(module.get<std::string>() + ".");
      model.tensors.push_back(tensor);
    }
  }
  rank_memory(const rank_memory&) = delete;

  /// Overwrites everything except padding.
  void spoil(std::int32_t rank) {
    for (auto& unit : model.units) {
      std::memset(unit.shard.data, 0x3C,
                  static_cast<std::size_t>(unit.shard.sizes[0] * shardmesh::item_bytes(unit.shard.type)));
      static_cast<void>(unit.parameters.fill_padding(*unit.group.position(rank), unit.shard));
    }
    for (auto& tensor : model.tensors)
      std::memset(tensor.value.data, 0x3C,
                  static_cast<std::size_t>(shardmesh::numel(tensor.value) * shardmesh::item_bytes(tensor.value.type)));
  }
  const std::map<std::string, fsdp_golden::stored>& values() const { return values_; }

  shardmesh::fsdp_model model;

 private:
  std::map<std::string, fsdp_golden::stored> values_;
};

}  // namespace fsdp_models
