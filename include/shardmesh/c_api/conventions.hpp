// SPDX-License-Identifier: Apache-2.0
// The mappings between naming conventions that the library contains: their names and texts.
#pragma once
#include <shardmesh/c_api/conventions.h>
#include <shardmesh/c_api/values.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace shardmesh {
namespace c_api {

/// Returns the names of the mappings, such as "hf.llama:megatron.gpt", sorted by their conventions.
inline std::vector<std::string> mappings() {
  std::size_t count = 0;
  checked([&](shardmesh_error** e) { return shardmesh_mapping_count(&count, e); });
  std::vector<std::string> made;
  for (std::size_t i = 0; i < count; ++i) {
    shardmesh_text name{};
    checked([&](shardmesh_error** e) { return shardmesh_mapping_name(i, &name, e); });
    made.push_back(to_string(name));
  }
  return made;
}

/// Returns the TOML text of a mapping.
inline std::string mapping_text(const std::string& name) {
  shardmesh_text toml{};
  checked([&](shardmesh_error** e) { return shardmesh_mapping_text(c_text(name), &toml, e); });
  return to_string(toml);
}

}  // namespace c_api
}  // namespace shardmesh
