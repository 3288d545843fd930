// SPDX-License-Identifier: Apache-2.0
#include "mapping_options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "command.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.mapping;

namespace tool {
namespace {

using namespace shardmesh;
namespace fs = std::filesystem;

// The configuration beside a checkpoint, as Hugging Face and Meta name it; empty if there is none.
fs::path config_beside(const fs::path& source) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(source, ignored) ? source : source.parent_path();
  for (const char* const name : {"config.json", "params.json"})
    if (fs::is_regular_file(folder / name, ignored)) return folder / name;
  return {};
}

}  // namespace

void add_mapping_options(CLI::App& command, mapping_arguments& into) {
  const auto group = "Mapping";
  CLI::Option* map = command
                         .add_option("--map", into.map,
                                     "Rename, fuse, and split tensors by a mapping: FROM:TO of two conventions (map "
                                     "list names them), or a TOML file")
                         ->type_name("MAPPING")
                         ->group(group);
  command.add_flag("--inverse", into.inverse, "Apply the mapping of a TOML file from right to left")
      ->group(group)
      ->needs(map);
  command
      .add_option("--config", into.config,
                  "JSON file with the model's sizes; otherwise config.json or params.json of SRC")
      ->type_name("FILE")
      ->check(some_path())
      ->group(group)
      ->needs(map);
  command.add_option("--size", into.sizes, "Set a size of the mapping: num_experts=8")
      ->type_name("NAME=N")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group)
      ->needs(map);
}

result<std::vector<mapping_rules>> find_mappings(const mapping_arguments& given) {
  // A name of conventions is never that of a file with an ending.
  const bool is_file = given.map.ends_with(".toml") || given.map.find(':') == std::string::npos;
  if (!is_file) {
    if (given.inverse)
      return fail(errc::invalid_argument, "--inverse is for a TOML file")
          .with_hint("swap the names of the conventions instead");
    return shardmesh::find_mappings(given.map);
  }
  SHARDMESH_TRY(mapping_rules mapping, read_mapping(given.map));
  std::vector<mapping_rules> made;
  made.push_back(given.inverse ? mapping.inverse() : std::move(mapping));
  return made;
}

result<model_sizes> read_sizes(const mapping_arguments& given, const std::string& source) {
  model_sizes made;
  const fs::path config = given.config.empty() ? config_beside(source) : fs::path(given.config);
  if (!config.empty()) {
    SHARDMESH_TRY(made.config, read_config(config));
  }
  for (const std::string& text : given.sizes) {
    const std::size_t equals = text.find('=');
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = equals == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                    : std::from_chars(text.data() + equals + 1, end, value);
    if (equals == 0 || parsed.ec != std::errc{} || parsed.ptr != end)
      return fail(errc::invalid_argument, "--size is wrong").with_values("NAME=N, such as num_experts=8", text);
    made.given[text.substr(0, equals)] = value;
  }
  return made;
}

result<std::unique_ptr<checkpoint_reader>> apply_mappings(std::unique_ptr<checkpoint_reader> reader,
                                                          const mapping_arguments& given, const std::string& source) {
  SHARDMESH_TRY(const std::vector<mapping_rules> mappings, find_mappings(given));
  SHARDMESH_TRY(const model_sizes sizes, read_sizes(given, source));
  for (const mapping_rules& mapping : mappings) {
    SHARDMESH_TRY(bound_mapping bound, bind(mapping, reader->contents(), sizes));
    SHARDMESH_TRY(reader, mapped(std::move(reader), std::move(bound), {.check_sums = true}));
  }
  return reader;
}

}  // namespace tool
