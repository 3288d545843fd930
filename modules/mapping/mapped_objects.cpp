// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint;
import shardmesh.torch_file;
import :mapped_objects;
import :rule_captures;

namespace shardmesh {
result<void> check_equal_objects(checkpoint_reader& inner, const bound_object& object) {
  if (object.sources.size() < 2) return {};
  const catalog& stored = inner.contents();
  SHARDMESH_TRY(const object_value first, inner.read_object(object.sources[0]));
  const bool is_opaque = torch_file::has_unknown_values(first.json);
  for (std::size_t s = 1; s < object.sources.size(); ++s) {
    const std::size_t source = object.sources[s];
    SHARDMESH_TRY(const object_value other, inner.read_object(source));
    bool is_equal = first.kind == other.kind && first.type == other.type && first.json == other.json;
    if (is_equal && is_opaque) {
      SHARDMESH_TRY(const auto left, inner.content_of({false, object.sources[0]}));
      SHARDMESH_TRY(const auto right, inner.content_of({false, source}));
      is_equal = left && right && *left == *right;
    }
    if (is_equal) continue;
    const auto shown = [&](const object_value& value, std::size_t of) {
      return fmt::format("{} of {}", object_text(value.json), escaped(stored.objects[of].key));
    };
    return fail(errc::disagreement, "the parameters of an optimizer that the mapping joins have different values")
        .with_key(object.key)
        .with_values(shown(first, object.sources[0]), shown(other, source))
        .with_hint("make the values equal, or leave the optimizer out before the checkpoint is mapped");
  }
  return {};
}

instances_by_key index_instances(const bound_mapping& bound, const catalog& source) {
  instances_by_key made;
  for (std::size_t i = 0; i < bound.instances.size(); ++i)
    for (const std::size_t one : bound.instances[i].sources) made.emplace(source.tensors[one].key, i);
  for (const unused_tensor& one : bound.unused) made.emplace(source.tensors[one.source].key, bound.instances.size());
  return made;
}

result<std::string> with_new_names(const std::string& names, std::string_view key, const bound_mapping& bound,
                                   const bound_list& list, const instances_by_key& instances) {
  using json = nlohmann::json;
  const json old = json::parse(names, nullptr, false);
  if (!old.is_array()) return names;
  json made = json::array();
  std::map<std::size_t, std::size_t> listed;  // number of sources in the list, by instance
  for (const json& item : old) {
    if (!item.is_string()) {
      made.push_back(item);
      continue;
    }
    const auto& name = item.get_ref<const std::string&>();
    const bound_list::prefix* prefix = nullptr;
    std::size_t instance = 0;
    for (const bound_list::prefix& one : list.prefixes) {
      const auto found = instances.find(one.of_sources + name);
      if (found == instances.end()) continue;
      prefix = &one;
      instance = found->second;
      break;
    }
    if (prefix == nullptr) {
      made.push_back(item);
      continue;
    }
    if (instance == bound.instances.size() || ++listed[instance] > 1) continue;
    for (const bound_tensor& target : bound.targets_of(instance)) {
      if (!is_utf8(target.key))
        return fail(errc::invalid_argument, "the new name of a parameter is not UTF-8, which a list needs")
            .with_key(target.key);
      made.push_back(target.key.substr(prefix->of_targets.size()));
    }
  }
  for (const auto& [instance, count] : listed) {
    const bound_instance& joined = bound.instances[instance];
    if (count == joined.sources.size()) continue;
    return fail(errc::unsupported, fmt::format("{} joins parameters of different groups of the optimizer",
                                               described(bound.rule_of(joined))))
        .with_key(key)
        .with_values(fmt::format("all {} parameters of the rule in one list", joined.sources.size()),
                     fmt::format("{}", count))
        .with_hint("leave the optimizer out before the checkpoint is mapped");
  }
  return made.dump(-1, ' ', true);
}

result<object_value> renamed_list(checkpoint_reader& inner, const bound_mapping& bound, const bound_list& list,
                                  const instances_by_key& instances) {
  SHARDMESH_TRY(object_value value, inner.read_object(list.object));
  SHARDMESH_TRY(value.json,
                with_new_names(value.json, inner.contents().objects[list.object].key, bound, list, instances));
  return value;
}

}  // namespace shardmesh
