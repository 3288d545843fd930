// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// The configuration beside a checkpoint, as Hugging Face and Meta name it; empty if there is none.
result<std::filesystem::path> config_beside(const std::filesystem::path& checkpoint) {
  const places::remembered_answers answers;
  SHARDMESH_TRY(const places::file_status of_path, places::checked_status(checkpoint));
  const std::filesystem::path folder = places::is_directory(of_path) ? checkpoint : places::folder_of(checkpoint);
  for (const char* const name : {"config.json", "params.json"}) {
    std::filesystem::path file = folder / name;
    SHARDMESH_TRY(const places::file_status there, places::checked_status(file));
    if (places::is_regular_file(there)) return file;
  }
  return std::filesystem::path();
}

}  // namespace

result<std::vector<mapping_rules>> choose_mappings(std::string_view named, bool is_inverse) {
  // Names of conventions have neither.
  const bool is_file = named.ends_with(".toml") || named.find('/') != std::string_view::npos;
  if (!is_file) {
    if (is_inverse)
      return fail(errc::invalid_argument, "only the mapping of a TOML file can be inverted")
          .with_values("the path of a file", std::string(named))
          .with_hint("swap the names of the conventions");
    return find_mappings(named);
  }
  SHARDMESH_TRY(mapping_rules mapping, read_mapping(std::filesystem::path(named)));
  std::vector<mapping_rules> made;
  made.push_back(is_inverse ? mapping.inverse() : std::move(mapping));
  return made;
}

result<model_sizes> read_model_sizes(const std::filesystem::path& checkpoint, const std::filesystem::path& config) {
  model_sizes made;
  std::filesystem::path file = config;
  if (file.empty()) {
    SHARDMESH_TRY(file, config_beside(checkpoint));
  }
  if (!file.empty()) {
    SHARDMESH_TRY(made.config, read_config(file));
  }
  return made;
}

result<std::unique_ptr<checkpoint_reader>> map_checkpoint(std::unique_ptr<checkpoint_reader> reader,
                                                          std::span<const mapping_rules> mappings,
                                                          const model_sizes& sizes, const mapped_options& options) {
  for (const mapping_rules& mapping : mappings) {
    SHARDMESH_TRY(bound_mapping bound, bind_mapping(mapping, reader->contents(), sizes));
    SHARDMESH_TRY(reader, mapped(std::move(reader), std::move(bound), options));
  }
  return reader;
}

}  // namespace shardmesh
