// SPDX-License-Identifier: Apache-2.0
// `shardmesh map`: lists and prints the mappings that ship with shardmesh, proves that one fits a checkpoint, and shows
// the tensors that one tensor is made of.
#include <fmt/format.h>
#include <plural.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "action_options.hpp"
#include "cache_option.hpp"
#include "command.hpp"
#include "console.hpp"
#include "map_show.hpp"
#include "mapping_options.hpp"
#include "opening.hpp"
#include "output_file.hpp"
#include "report.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.mapping;

namespace tool {
namespace {

using namespace shardmesh;

struct map_arguments {
  std::string action;
  std::vector<std::string> values;
  mapping_arguments mapping;
  map_outputs outputs;
};

int list_mappings() {
  std::string text;
  for (const shipped_convention& one : shipped_conventions()) text += fmt::format("{}:{}\n", one.left, one.right);
  return print(std::move(text)) ? done : not_completed;
}

// Prints a mapping as TOML. Those of a chain follow each other in the order in which they are applied, each after a
// comment with its name and direction.
int print_mapping(const std::string& name) {
  const auto text = shipped_mapping_text(name);
  if (text) return print(std::string(*text)) ? done : not_completed;
  const auto chain = shardmesh::find_mappings(name);
  if (!chain) return refuse(chain.error());
  std::string all;
  for (std::size_t i = 0; i < chain->size(); ++i) {
    const mapping_rules& mapping = (*chain)[i];
    const auto part = shipped_mapping_text(mapping.file);
    if (!part) return refuse(part.error());
    const std::string direction = fmt::format("{}:{}", mapping.left, mapping.right);
    all += fmt::format("{}# {} of {}: {}{}\n", i > 0 ? "\n" : "", i + 1, chain->size(), direction,
                       direction == mapping.file ? "" : ", with --inverse");
    all += *part;
  }
  return print(std::move(all)) ? done : not_completed;
}

// A checkpoint, and the views of it under each convention on the way to the last.
struct mapped_source {
  std::unique_ptr<checkpoint_reader> reader;
  bound_mapping last;                 // between the last two
  std::vector<tensor_entry> tensors;  // of the last but one
};

result<mapped_source> open_mapped(const map_arguments& given, const common_options& common) {
  SHARDMESH_TRY(const std::vector<mapping_rules> mappings, find_mappings(given.mapping));
  SHARDMESH_TRY(const model_sizes sizes, read_sizes(given.mapping, given.values[0]));
  SHARDMESH_TRY(check_given_sizes(mappings, sizes));
  mapped_source made;
  SHARDMESH_TRY(made.reader, open_source(given.values[0], common));
  for (const mapping_rules& mapping : mappings) {
    SHARDMESH_TRY(made.last, bind_mapping(mapping, made.reader->contents(), sizes));
    made.tensors = made.reader->contents().tensors;
    SHARDMESH_TRY(made.reader, mapped(std::move(made.reader), made.last));
  }
  return made;
}

// Compares the mapped tensors with those of a checkpoint that has the other convention already.
std::vector<error> compare(const checkpoint_reader& made, const checkpoint_reader& expected) {
  std::vector<error> problems;
  for (const tensor_entry& entry : expected.contents().tensors) {
    const tensor_entry* const found = made.contents().find(entry.key);
    if (found == nullptr)
      problems.push_back(fail(errc::missing_key, "no rule makes this tensor").with_key(entry.key));
    else if (found->shape != entry.shape)
      problems.push_back(fail(errc::shape_mismatch, "the mapping makes a tensor of a different shape")
                             .with_key(entry.key)
                             .with_values(to_string(entry.shape), to_string(found->shape)));
  }
  for (const tensor_entry& entry : made.contents().tensors)
    if (expected.contents().find(entry.key) == nullptr)
      problems.push_back(fail(errc::missing_key, "the checkpoint lacks this tensor, which the mapping makes")
                             .with_key(entry.key)
                             .with_file(expected.path().string()));
  return problems;
}

int check(const map_arguments& given, const common_options& common) {
  works_on(given.values[0]);
  const auto source = open_mapped(given, common);
  if (!source) return report(source.error());
  print_notes(source->reader->notes());
  if (given.values.size() > 1) {
    const auto expected = open_source(given.values[1], common);
    if (!expected) return report(expected.error());
    std::vector<error> problems = compare(*source->reader, **expected);
    if (!problems.empty()) return report(fail_all(std::move(problems)));
  }
  const auto& made = source->last;
  const bool uses_all = made.unused.empty() && made.dropped_elements == 0;
  const std::string text = fmt::format(
      "ok: every element of {} is used once{}; {} made, {} of them renamed only\n",
      detail::counted(static_cast<std::int64_t>(source->reader->stored().contents().tensors.size()), "tensor"),
      uses_all ? "" : ", or named in a note", detail::counted(static_cast<std::int64_t>(made.tensors.size()), "tensor"),
      made.renamed_tensors);
  return print(text) ? done : not_completed;
}

int show(const map_arguments& given, const common_options& common) {
  works_on(given.values[0]);
  const auto source = open_mapped(given, common);
  if (!source) return report(source.error());
  const bound_mapping& bound = source->last;
  const auto found = std::find_if(bound.tensors.begin(), bound.tensors.end(),
                                  [&](const bound_tensor& tensor) { return tensor.key == given.values[1]; });
  if (found == bound.tensors.end() && source->reader->contents().find(given.values[1]) != nullptr)
    return report(fail(errc::unsupported, "no rule makes this tensor: the mapping leaves it unchanged")
                      .with_key(given.values[1]));
  if (found == bound.tensors.end()) return report(no_such_entry(*source->reader, given.values[1], entry_kind::tensor));
  return show_tensor({bound, *found, source->tensors}, given.outputs, {given.values[0]});
}

const std::vector<action_options>& options_of_actions() {
  static const std::vector<action_options> all{
      {{"--json", "--svg", "--html", "--force"}, {"show"}},
      {{"--map", "--inverse", "--config", "--size", "--cache"}, {"check", "show"}}};
  return all;
}

int run(const CLI::App& command, const map_arguments& given, const common_options& common) {
  const auto wrong = [&](std::string_view expected) {
    return refuse(fail(errc::invalid_argument, fmt::format("'map {}' has the wrong arguments", given.action))
                      .with_values(std::string(expected),
                                   detail::counted(static_cast<std::int64_t>(given.values.size()), "argument")));
  };
  const std::size_t count = given.values.size();
  if (const auto used = check_action_options(command, given.action, options_of_actions()); !used)
    return refuse(used.error());
  if (given.action == "list") return count == 0 ? list_mappings() : wrong("map list");
  if (given.action == "print") return count == 1 ? print_mapping(given.values[0]) : wrong("map print FROM:TO");
  if (!given.mapping.is_given())
    return refuse(fail(errc::invalid_argument, fmt::format("'map {}' needs --map", given.action)));
  if (given.action == "check")
    return count == 1 || count == 2 ? check(given, common) : wrong("map check SRC [DST] --map MAPPING");
  return count == 2 ? show(given, common) : wrong("map show SRC KEY --map MAPPING");
}

}  // namespace

void add_map(CLI::App& app, invocation& call) {
  auto given = std::make_shared<map_arguments>();
  CLI::App* command =
      app.add_subcommand("map", "List mappings between naming conventions, prove them, and show tensors");
  command->footer(
      "shardmesh map print hf.llama:megatron.gpt\n"
      "shardmesh map check HF --map hf.llama:megatron.gpt\n"
      "shardmesh map show HF KEY --map hf.llama:megatron.gpt --svg key.svg");
  command
      ->add_option("ACTION", given->action,
                   "list: the mappings. print FROM:TO: one as TOML, or those of a chain. check SRC [DST]: prove that "
                   "--map fits SRC, and that "
                   "it makes the tensors of DST. show SRC KEY: what a tensor is made of")
      ->required()
      ->check(one_of({"list", "print", "check", "show"}));
  command->add_option("ARGUMENTS", given->values, "A checkpoint, a key, or the name of a mapping");
  command->add_flag("--json", given->outputs.json, "show: print one JSON document");
  command->add_option("--svg", given->outputs.svg, "show: write a picture to FILE")
      ->type_name("FILE")
      ->check(some_path());
  command->add_option("--html", given->outputs.html, "show: write a page for a browser to FILE; it needs no network")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(*command, given->outputs.force, "--svg and --html");
  add_mapping_options(*command, given->mapping);
  add_cache_option(*command);
  command->callback([command, given, &call] { call.status = run(*command, *given, call.common); });
}

}  // namespace tool
