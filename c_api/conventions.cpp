// SPDX-License-Identifier: Apache-2.0
// The mappings between naming conventions: their names and texts, and a checkpoint that one shows.
#include <shardmesh/c_api/conventions.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "border.hpp"
#include "conventions.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.mapping;

namespace c_api {
using namespace shardmesh;

namespace {

// Texts of the C interface point into the names, so they live until the program ends.
const std::vector<std::string>& mapping_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> made;
    for (const shipped_convention& one : shipped_conventions()) made.push_back(one.left + ":" + one.right);
    return made;
  }();
  return all;
}

named_sizes given_sizes(const mapping_choice& choice) {
  named_sizes made;
  if (choice.size_count > 0 && choice.sizes == nullptr) refuse_null("sizes");
  for (std::size_t i = 0; i < choice.size_count; ++i) {
    const std::string name(to_text(choice.sizes[i].name, "name of a size"));
    if (!made.emplace(name, choice.sizes[i].value).second) refuse_argument("sizes", "sets '" + name + "' twice");
  }
  return made;
}

}  // namespace

chosen_mapping to_mapping(const mapping_choice& choice, const std::filesystem::path& path) {
  chosen_mapping made;
  made.mappings = value_of(choose_mappings(choice.map, choice.is_inverse));
  const std::filesystem::path config = choice.config == nullptr ? "" : choice.config;
  if (!path.empty() || !config.empty()) made.sizes = value_of(read_model_sizes(path, config));
  made.sizes.given = given_sizes(choice);
  return made;
}

void refuse_without_map(const mapping_choice& choice) {
  if (choice.config != nullptr) refuse_argument("config", "is set without map");
  if (choice.size_count > 0) refuse_argument("sizes", "is set without map");
  if (choice.is_inverse) refuse_argument("map_inverse", "is set without map");
}

std::unique_ptr<checkpoint_reader> apply_map(std::unique_ptr<checkpoint_reader> reader,
                                             const std::filesystem::path& path, const shardmesh_open_options& wanted) {
  const mapping_choice choice{wanted.map, wanted.config, wanted.sizes, wanted.size_count, wanted.map_inverse != 0};
  if (wanted.map == nullptr) {
    refuse_without_map(choice);
    return reader;
  }
  if (wanted.only_key_count > 0) refuse_argument("map", "is set, and so is only_keys: set one of them");
  const chosen_mapping chosen = to_mapping(choice, path);
  // `shardmesh_convert` promises that checksums are compared.
  return value_of(map_checkpoint(std::move(reader), chosen.mappings, chosen.sizes, {.check_sums = true}));
}

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_mapping_count(size_t* count, shardmesh_error** error) {
  return guarded(error, [&] { needed(count, "count") = mapping_names().size(); });
}

shardmesh_status shardmesh_mapping_name(size_t index, shardmesh_text* name, shardmesh_error** error) {
  return guarded(error, [&] {
    const std::vector<std::string>& names = mapping_names();
    check_index(index, names.size(), "mapping");
    needed(name, "name") = to_c(names[index]);
  });
}

shardmesh_status shardmesh_mapping_text(const char* name, shardmesh_text* toml, shardmesh_error** error) {
  return guarded(error, [&] {
    const std::string_view text = value_of(shardmesh::shipped_mapping_text(to_text(name, "name")));
    needed(toml, "toml") = {text.data(), text.size()};
  });
}

}  // extern "C"
