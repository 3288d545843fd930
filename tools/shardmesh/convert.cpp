// SPDX-License-Identifier: Apache-2.0
// `shardmesh convert`: rewrites any readable checkpoint in another format.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "mapping_options.hpp"
#include "opening.hpp"
#include "report.hpp"
#include "saving.hpp"
#include "selection_options.hpp"
#include "signals.hpp"

import shardmesh;
import shardmesh.state_checkpoint;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string source, destination, flat_spec, dedup, like;
  bool dequantize = false;
  std::vector<std::string> quantize;
  convert_options options;
  selection_arguments selection;
  mapping_arguments mapping;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const target& format : targets()) names.emplace_back(format.name);
  return names;
}

int run(arguments& given, const common_options& common, bool format_given) {
  works_on(given.source);
  if (!format_given) {
    const target* const format = target_by_extension(given.destination);
    if (format == nullptr)
      return refuse(fail(errc::invalid_argument, "the name does not show the format to write")
                        .with_file(given.destination)
                        .with_hint(fmt::format("pass {}, or a name that ends in .safetensors, .pt, .gguf, or .npz",
                                               target_names("--to "))));
    given.options.format = format->format;
  }
  if (!given.dedup.empty()) given.options.dedup = given.dedup == "equal" ? dedup_rule::equal : dedup_rule::tied;
  auto reader = open_source(given.source, common);
  if (!reader) return report(reader.error());
  if (!given.flat_spec.empty()) {
    if (const auto apart = check_disjoint(given.destination, given.flat_spec); !apart) return report(apart.error());
    const auto units = read_flat_units(given.flat_spec);
    if (!units) return report(units.error());
    reader = carve_flat_parameters(*std::move(reader), *units);
    if (!reader) return report(reader.error());
  }
  std::unique_ptr<checkpoint_reader> like;
  if (!given.like.empty()) {
    auto opened = open_checkpoint(
        given.like, {.limits = read_limits{}.times(common.limit_factor), .within = time_limit_of(common)});
    if (!opened) return report(opened.error());
    like = *std::move(opened);
    given.options.like = like.get();
  }
  if (given.dequantize) {
    reader = dequantized(*std::move(reader), {.check_sums = true});
    if (!reader) return report(reader.error());
  }
  if (given.mapping.is_given()) {
    reader = apply_mappings(*std::move(reader), given.mapping, given.source);
    if (!reader) return report(reader.error());
  }
  auto selection = given.selection.compile();
  if (!selection) return print_report(selection.error(), given.destination, given.options.format);
  given.options.selection = *std::move(selection);
  for (const std::string& text : given.quantize) {
    auto rule = parse_quantize_rule(text);
    if (!rule) {
      error cause = std::move(rule).error();
      cause.message = "--quantize " + cause.message;
      return print_report(cause, given.destination, given.options.format);
    }
    given.options.quantize.push_back(*std::move(rule));
  }
  progress_bar bar((*reader)->contents().tensor_bytes());
  given.options.progress = [&bar](std::int64_t bytes) { bar.advance(bytes); };
  given.options.threads = common.threads;
  given.options.within = time_limit_of(common);
  given.options.cancel = common.cancel;
  const unwinding_on_signals unwinding;
  return print_report(convert(**reader, given.destination, given.options), given.destination, given.options.format);
}

void add_places(CLI::App& command, const std::shared_ptr<arguments>& given) {
  command
      .add_option(
          "SRC", given->source,
          "A checkpoint of any format that shardmesh reads: DCP, .pt, safetensors, Hugging Face, GGUF, .npz, and more")
      ->required();
  command
      .add_option("DST", given->destination,
                  "The file (safetensors, pt, gguf, npz) or folder (dcp, hf, torch-checkpointing) to write")
      ->required();
  command
      .add_option_function<std::string>(
          "--to", [given](const std::string& text) { given->options.format = find_target(text)->format; },
          "Format of DST, unless DST ends in .safetensors, .pt, .gguf, or .npz")
      ->check(one_of(format_names()))
      ->type_name("FORMAT");
}

void add_content_options(CLI::App& command, const std::shared_ptr<arguments>& given) {
  command
      .add_option_function<std::string>(
          "--max-shard-size",
          [given](const std::string& text) {
            const auto amount = parse_bytes(text);
            if (!amount || *amount == 0)
              throw CLI::ValidationError("--max-shard-size", "'" + text + "' is not a number of bytes such as 5GB");
            given->options.max_shard_bytes = *amount;
          },
          "hf: size of the largest file; a larger tensor gets its own file")
      ->type_name("BYTES")
      ->default_str("5GB");
  command.add_flag("--skip-objects", given->options.skip_objects,
                   "Drop objects; otherwise, safetensors and hf write them to objects.json");
  command.add_flag("--skip-unsupported", given->options.skip_unsupported,
                   "Drop tensors that the destination cannot hold, and objects that hold such tensors");
  command
      .add_flag("--dedup{tied}", given->dedup,
                "Write a stored tensor with several names (tied weights) once; with --dedup=equal, also tensors "
                "with equal bytes")
      ->check(one_of({"tied", "equal"}))
      ->type_name("[=equal]");
  command
      .add_option(
          "--flat-spec", given->flat_spec,
          "JSON file that names the tensors in the flat parameters of an FSDP1 local state dict, in order: "
          "{\"units\": [{\"key\": \"model._flat_param\", \"parameters\": [{\"name\": \"w\", \"shape\": [4, 3]}]}]}")
      ->type_name("FILE")
      ->check(some_path());
  command
      .add_option("--like", given->like,
                  "Require that tensors have the shapes in another checkpoint; tensors that it lacks keep their shapes")
      ->type_name("CKPT")
      ->check(some_path());
  command
      .add_flag("--allow-shape-mismatch", given->options.allow_shape_mismatch,
                "With --like: cut tensors of another shape at the end, or fill them with zeros (padded "
                "vocabularies), each with a note")
      ->needs("--like");
}

// Adds the options that concern only some formats.
void add_format_options(CLI::App& command, const std::shared_ptr<arguments>& given) {
  command.add_flag("--components", given->options.components,
                   "dcp, pt, torch-checkpointing: write sparse, nested, quantized, and torchao's tensors as their "
                   "components, and do not rebuild them");
  command.add_flag("--nest", given->options.nest,
                   "dcp, pt, torch-checkpointing: split flat names at dots into nested paths");
  command
      .add_option(
          "--item", given->options.item,
          "torch-checkpointing: put all entries below one item. Otherwise, each flat name is an item of its own, with "
          "a file for each rank")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--payload",
          [given](const std::string& text) {
            given->options.payload = text == "safetensors" ? payload_kind::safetensors : payload_kind::torch;
          },
          "torch-checkpointing: kind of the ranks' files; safetensors holds only items of tensors")
      ->check(one_of({"torch", "safetensors"}))
      ->type_name("KIND")
      ->default_str("torch");
  command
      .add_option(
          "--quantize", given->quantize,
          "gguf: quantize tensors. TYPE quantizes the floating tensors of two or more dimensions whose rows are "
          "whole blocks; RE=TYPE those whose keys match. TYPE is Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K, or F32. The "
          "first rule that matches decides")
      ->type_name("RULE")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

void add_convert(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand("convert", "Write a checkpoint in another format, tensor by tensor");
  command->footer(
      "shardmesh convert CKPT model.safetensors --no-optimizer\n"
      "shardmesh convert CKPT hf --to hf --max-shard-size 2GB --dtype bfloat16\n"
      "shardmesh convert HF megatron.safetensors --map hf.llama:megatron.gpt");
  add_places(*command, given);
  add_content_options(*command, given);
  add_dequantize_option(*command, given->dequantize);
  add_json_option(*command);
  add_format_options(*command, given);
  add_saving_options(*command, given->options.overwrite, given->options.durable, given->options.memory_bytes);
  add_mapping_options(*command, given->mapping);
  add_selection_options(*command, given->selection);
  CLI::Option* const to = command->get_option("--to");
  command->callback([given, to, &call] { call.status = run(*given, call.common, to->count() > 0); });
}

}  // namespace tool
