// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "mapping_options.hpp"

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

using namespace shardmesh;

void add_mapping_options(CLI::App& command, mapping_arguments& into, const std::string& source) {
  const auto group = "Mapping";
  CLI::Option* map = command
                         .add_option("--map", into.map,
                                     "Rename, fuse, and split tensors of " + source +
                                         " by a mapping: FROM:TO of two conventions ('map list' names them), or a TOML "
                                         "file")
                         ->type_name("MAPPING")
                         ->group(group);
  command.add_flag("--inverse", into.inverse, "Apply the mapping of a TOML file from right to left")
      ->group(group)
      ->needs(map);
  command
      .add_option("--config", into.config,
                  "JSON file with the model's sizes; otherwise config.json or params.json of " + source)
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
  return choose_mappings(given.map, given.inverse);
}

result<model_sizes> read_sizes(const mapping_arguments& given, const std::string& source) {
  SHARDMESH_TRY(model_sizes made, read_model_sizes(source, given.config));
  for (const std::string& text : given.sizes) {
    const std::size_t equals = text.find('=');
    std::int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = equals == std::string::npos ? std::from_chars_result{end, std::errc::invalid_argument}
                                                    : std::from_chars(text.data() + equals + 1, end, value);
    if (equals == 0 || parsed.ec != std::errc{} || parsed.ptr != end)
      return fail(errc::invalid_argument, "--size is wrong").with_values("NAME=N, such as num_experts=8", text);
    if (!made.given.emplace(text.substr(0, equals), value).second)
      return fail(errc::invalid_argument, "--size sets a size twice")
          .with_values("each name once", text)
          .with_hint("remove one of the two options");
  }
  return made;
}

result<std::unique_ptr<checkpoint_reader>> apply_mappings(std::unique_ptr<checkpoint_reader> reader,
                                                          const mapping_arguments& given, const std::string& source) {
  SHARDMESH_TRY(const std::vector<mapping_rules> mappings, find_mappings(given));
  SHARDMESH_TRY(const model_sizes sizes, read_sizes(given, source));
  return map_checkpoint(std::move(reader), mappings, sizes, {.check_sums = true});
}

}  // namespace tool
