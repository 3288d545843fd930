// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "selection_options.hpp"

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
  CLI::Option* only =
      command.add_option("--only", into.only, "Take only the keys that match RE")->type_name("RE")->group(group);
  CLI::Option* skip =
      command.add_option("--skip", into.skip, "Leave out the keys that match RE")->type_name("RE")->group(group);
  command
      .add_flag("--no-optimizer", into.no_optimizer,
                "Leave out optimizer state, which is recognised by the structure of all keys")
      ->group(group);
  CLI::Option* rename = command
                            .add_option("--rename", into.rename,
                                        "Rename keys that match RE; \\1 is the first group. Rules apply in order")
                            ->type_name("RE=REPLACEMENT")
                            ->group(group);
  command.add_option("--strip-prefix", into.strip_prefix, "Remove this prefix from the keys that have it")
      ->type_name("P")
      ->group(group);
  command
      .add_flag(
          "--optimizer-follows", into.optimizer_follows,
          "Apply --skip, --strip-prefix, and --rename of a parameter also to its optimizer state, and to its name "
          "in param_groups")
      ->group(group);
  CLI::Option* dtype =
      command
          .add_option(
              "--dtype", into.dtype,
              "Cast tensors. NAME casts tensors of its kind: floating (of at least 16 bits), integer, or complex. "
              "RE=NAME casts those whose keys match, FP8 included. FROM:NAME and RE=FROM:NAME cast tensors of dtype "
              "FROM, of any kind. The first rule that casts a tensor decides")
          ->type_name("RULE")
          ->group(group);
  command
      .add_flag("--allow-narrowing", into.allow_narrowing,
                "Accept casts that lose integer values, or that turn fractions into integers")
      ->group(group);
  command.add_flag("--allow-unused", into.allow_unused, "Accept rules that match nothing")->group(group);
  // One value per occurrence, so that a key after it is not taken for another value.
  for (CLI::Option* option : {only, skip, rename, dtype})
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_dequantize_option(CLI::App& command, bool& into) {
  command.add_flag("--dequantize", into,
                   "Read FP8 weights with block scales (weight, weight_scale_inv) and MXFP4 (_blocks, _scales) as the "
                   "float32 numbers that they represent; --dtype casts these");
}

void add_saving_options(CLI::App& command, bool& overwrite, bool& durable, std::int64_t& memory_bytes) {
  command
      .add_option_function<std::string>(
          "--memory",
          [&memory_bytes](const std::string& text) {
            const auto amount = shardmesh::parse_bytes(text);
            if (!amount)
              throw CLI::ValidationError("--memory", "'" + text + "' is not a number of bytes such as 64MiB");
            memory_bytes = *amount;
          },
          "Staging memory of all threads together")
      ->type_name("BYTES")
      ->default_str("1GiB");
  command.add_flag("--force", overwrite, "Replace an existing destination, once the new one is on the disk");
  command.add_flag_callback(
      "--no-sync", [&durable] { durable = false; },
      "Do not wait for the disk. A power failure may then lose the new checkpoint, and with --force the old one");
}

void add_json_option(CLI::App& command) {
  command.add_flag_callback("--json", [] {}, "Print one JSON document");
}

}  // namespace tool
