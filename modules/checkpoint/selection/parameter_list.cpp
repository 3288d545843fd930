// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {

result<std::optional<object_value>> renamed_parameter_list(checkpoint_reader& reader, std::size_t object,
                                                           const param_group_renames& lists, std::size_t index) {
  using json = nlohmann::json;
  if (!lists.concerns(index)) return std::optional<object_value>();
  auto read = reader.read_object(object);
  if (!read) return std::move(read).error();
  const json stored = json::parse(read->json, nullptr, false);
  if (!stored.is_array()) return std::optional<object_value>();
  json made = json::array();
  bool has_changed = false;
  for (const json& item : stored) {
    if (!item.is_string()) {
      made.push_back(item);
      continue;
    }
    const auto& name = item.get_ref<const std::string&>();
    const std::optional<std::string> renamed = lists.renamed(index, name);
    has_changed |= renamed != name;
    if (renamed && !is_utf8(*renamed))
      return fail(errc::invalid_argument, fmt::format("the new name of {} is not UTF-8: no list can hold it", name))
          .with_key(reader.contents().objects[object].key);
    if (renamed) made.push_back(*renamed);
  }
  if (!has_changed) return std::optional<object_value>();
  read->json = made.dump(-1, ' ', true);
  return std::optional(*std::move(read));
}

}  // namespace shardmesh
