// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :model_values_reader;

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

// "list[].text" of "list[3].text", as `size_expression::names` returns it.
std::string without_index(std::string_view name) {
  const std::size_t open = name.find('['), close = name.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::string(name);
  return std::string(name.substr(0, open + 1)) + std::string(name.substr(close));
}

using name_set = std::set<std::string, std::less<>>;

void add_names(const std::optional<size_expression>& expression, name_set& to) {
  if (!expression) return;
  for (std::string& name : expression->names()) to.insert(std::move(name));
}

void add_names(const name_template& name, name_set& to) {
  to.insert(name.captures().begin(), name.captures().end());
}

void add_factors(const std::vector<index_tensor>& tensors, name_set& to) {
  for (const index_tensor& tensor : tensors)
    for (const std::vector<index_term>& dimension : tensor.dimensions)
      for (const index_term& term : dimension) {
        if (term.segments.empty()) to.insert(term.factor.name);
        for (const index_segment& segment : term.segments)
          for (const index_factor& factor : segment.factors) to.insert(factor.name);
      }
}

// Adds the names that a mapping uses as sizes.
void add_names(const mapping_rules& mapping, name_set& to) {
  for (const auto* list : {&mapping.sizes, &mapping.captures})
    for (const named_expression& one : *list) {
      to.insert(one.name);
      add_names(one.value, to);
    }
  for (const mapping_rule& rule : mapping.rules) {
    for (const auto* side : {&rule.left, &rule.right})
      for (const named_tensor& tensor : *side) add_names(tensor.name, to);
    add_factors(rule.index.left, to);
    add_factors(rule.index.right, to);
    add_names(rule.condition, to);
  }
  for (const ignored_tensors& one : mapping.ignored) {
    add_names(one.name, to);
    add_names(one.condition, to);
  }
  for (const tied_tensor& one : mapping.tied) {
    add_names(one.name, to);
    add_names(one.same_as, to);
    add_names(one.condition, to);
  }
  for (const refused_models& one : mapping.refused) add_names(one.condition, to);
  to.erase("1");  // the factor of size 1
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
    made.config_file = std::move(file);
  }
  return made;
}

result<void> check_given_sizes(std::span<const mapping_rules> mappings, const model_sizes& sizes) {
  if (sizes.given.empty()) return {};
  name_set names;
  for (const mapping_rules& mapping : mappings) add_names(mapping, names);
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::vector<error> problems;
  for (const auto& [name, value] : sizes.given) {
    if (names.contains(name) || names.contains(without_index(name))) continue;
    std::string hint = did_you_mean(nearest_key(views, name));
    if (hint.empty()) hint = fmt::format("the mapping uses {}", fmt::join(views, ", "));
    problems.push_back(fail(errc::invalid_argument, "no rule of the mapping uses a given size")
                           .with_values("a name that the mapping uses", fmt::format("{}={}", name, value))
                           .with_hint(std::move(hint)));
  }
  return problems.empty() ? result<void>{} : fail_all(std::move(problems));
}

result<std::unique_ptr<checkpoint_reader>> map_checkpoint(std::unique_ptr<checkpoint_reader> reader,
                                                          std::span<const mapping_rules> mappings,
                                                          const model_sizes& sizes, const mapped_options& options) {
  SHARDMESH_TRY(check_given_sizes(mappings, sizes));
  for (const mapping_rules& mapping : mappings) {
    SHARDMESH_TRY(bound_mapping bound, bind_mapping(mapping, reader->contents(), sizes));
    SHARDMESH_TRY(reader, mapped(std::move(reader), std::move(bound), options));
  }
  if (!mappings.empty() && llama_cpp::is_gguf_convention(mappings.back().right)) {
    SHARDMESH_TRY(reader, llama_cpp::with_model_values(std::move(reader), mappings.back().right, sizes));
  }
  return reader;
}

}  // namespace shardmesh
