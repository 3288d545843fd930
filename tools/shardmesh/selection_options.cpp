// SPDX-License-Identifier: Apache-2.0
#include "selection_options.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace tool {
namespace {

// Parses every text of one option; errors begin with the option's name.
template <class Rule>
shardmesh::result<std::vector<Rule>> parsed(const std::vector<std::string>& texts, std::string_view option,
                                            shardmesh::result<Rule> (*parse)(std::string_view)) {
  std::vector<Rule> rules;
  for (const std::string& text : texts) {
    auto rule = parse(text);
    if (!rule) {
      shardmesh::error cause = std::move(rule).error();
      cause.message = std::string(option) + " " + cause.message;
      return cause;
    }
    rules.push_back(*std::move(rule));
  }
  return rules;
}

}  // namespace

shardmesh::result<shardmesh::selection_options> selection_arguments::compile() const {
  shardmesh::selection_options made;
  SHARDMESH_TRY(made.only, parsed(only, "--only", shardmesh::key_pattern::compile));
  SHARDMESH_TRY(made.skip, parsed(skip, "--skip", shardmesh::key_pattern::compile));
  SHARDMESH_TRY(made.rename, parsed(rename, "--rename", shardmesh::parse_rename_rule));
  SHARDMESH_TRY(made.cast, parsed(dtype, "--dtype", shardmesh::parse_cast_rule));
  made.strip_prefix = strip_prefix;
  made.no_optimizer = no_optimizer;
  made.optimizer_follows = optimizer_follows;
  made.allow_unused = allow_unused;
  made.allow_narrowing = allow_narrowing;
  return made;
}

void add_selection_options(CLI::App& command, selection_arguments& into) {
  const auto group = "Selection (RE2 expressions that match whole keys)";
  CLI::Option* only = command.add_option("--only", into.only, "Take only keys that match RE (repeatable)")
                          ->type_name("RE")
                          ->group(group);
  CLI::Option* skip = command.add_option("--skip", into.skip, "Leave out keys that match RE (repeatable)")
                          ->type_name("RE")
                          ->group(group);
  command.add_flag("--no-optimizer", into.no_optimizer, "Leave out optimizer state, judged by all keys")->group(group);
  CLI::Option* rename =
      command.add_option("--rename", into.rename, "Rename keys, in order; \\1 is the first group (repeatable)")
          ->type_name("RE=REPLACEMENT")
          ->group(group);
  command.add_option("--strip-prefix", into.strip_prefix, "Remove this prefix from keys that have it")
      ->type_name("P")
      ->group(group);
  command
      .add_flag("--optimizer-follows", into.optimizer_follows,
                "--skip, --strip-prefix and --rename of a parameter are also of its optimizer state and of its name in "
                "param_groups")
      ->group(group);
  CLI::Option* dtype =
      command
          .add_option(
              "--dtype", into.dtype,
              "NAME casts tensors of its kind (floating of 16 bits and more, integer, complex); RE=NAME those that\n"
              "match, FP8 too. FROM:NAME and RE=FROM:NAME cast tensors of dtype FROM, whatever its kind\n"
              "(repeatable; the first that casts a tensor decides)")
          ->type_name("RULE")
          ->group(group);
  command
      .add_flag("--allow-narrowing", into.allow_narrowing,
                "--dtype may lose values of integers, or make integers of fractions; without it that is an error")
      ->group(group);
  command.add_flag("--allow-unused", into.allow_unused, "A rule that matches nothing is no error")->group(group);
  // One value per occurrence, so that a key after it is not taken for another value.
  for (CLI::Option* option : {only, skip, rename, dtype})
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_dequantize_option(CLI::App& command, bool& into) {
  command.add_flag("--dequantize", into,
                   "Read FP8 weights with block scales (weight, weight_scale_inv) and MXFP4 (_blocks, _scales) as the "
                   "float32 numbers that they stand for; --dtype casts those");
}

void add_saving_options(CLI::App& command, bool& overwrite, bool& durable, std::int64_t& memory_bytes) {
  command
      .add_option_function<std::string>(
          "--memory",
          [&memory_bytes](const std::string& text) {
            const auto amount = shardmesh::parse_bytes(text);
            if (!amount) throw CLI::ValidationError("--memory", "'" + text + "' is not an amount such as 64MiB");
            memory_bytes = *amount;
          },
          "Staging memory, all threads together (default 1GiB)")
      ->type_name("BYTES");
  command.add_flag("--force", overwrite, "Replace an existing destination, once the new one is durable");
  command.add_flag_callback(
      "--no-sync", [&durable] { durable = false; },
      "Do not wait for the disk, as torch.save does not: a power cut may take what was written, and with --force what "
      "was there");
}

void add_json_option(CLI::App& command) {
  command.add_flag_callback("--json", [] {}, "Print one JSON document");
}

}  // namespace tool
