// SPDX-License-Identifier: Apache-2.0
// `shardmesh reshard`: rewrites a checkpoint for another mesh.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "mapping_options.hpp"
#include "opening.hpp"
#include "report.hpp"
#include "saving.hpp"
#include "selection_options.hpp"
#include "signals.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string source, destination, mesh, like, defaults;
  std::vector<std::string> places;
  bool dry_run = false, dequantize = false;
  reshard_options options;
  selection_arguments selection;
  mapping_arguments mapping;
};

struct rank_sums {
  std::int64_t chunks = 0, bytes = 0;
};

std::string file_of_rank(std::int32_t rank) {
  return fmt::format("__{}_0.distcp", rank);
}

void print_plan_json(const reshard_plan& plan, const std::map<std::int32_t, rank_sums>& by_rank, std::int64_t total) {
  json_writer out;
  out.begin_object().member("ok", true);
  write_problems(out, {});
  out.key("notes")
      .list(plan.notes)
      .member("tensors", plan.tensors.size())
      .member("bytes", total)
      .member("objects", plan.objects.size())
      .member("ranks", plan.ranks)
      .member("skipped_tensors", plan.skipped_tensors)
      .member("skipped_objects", plan.skipped_objects)
      .member("excluded", plan.excluded)
      .key("files")
      .begin_list();
  for (const auto& [rank, sums] : by_rank)
    out.begin_object()
        .member("rank", rank)
        .member("file", file_of_rank(rank))
        .member("chunks", sums.chunks)
        .member("bytes", sums.bytes)
        .end_object();
  out.end_list().end_object().finish();
}

// Prints the files that would be written, rank by rank.
int print_plan(const reshard_plan& plan) {
  print_notes(plan.notes);
  print_problems(plan.problems);
  const int status = status_of(plan.problems);
  if (status != done) return status;
  std::map<std::int32_t, rank_sums> by_rank;
  std::int64_t total = 0;
  for (const output_tensor& tensor : plan.tensors)
    for (const output_chunk& chunk : tensor.chunks) {
      rank_sums& of = by_rank[chunk.rank];
      const std::int64_t size = size_bytes(tensor.type, chunk.where.volume()).value_or(0);
      ++of.chunks;
      of.bytes += size;
      total += size;
    }
  if (is_json()) {
    print_plan_json(plan, by_rank, total);
    return done;
  }
  for (const auto& [rank, sums] : by_rank)
    print(fmt::format("{}  {}, {}\n", file_of_rank(rank), counted(sums.chunks, "chunk"), human_bytes(sums.bytes)));
  const std::string entries =
      enumerated({fmt::format("{} ({})", counted(plan.tensors.size(), "tensor"), human_bytes(total)),
                  counted_if_any(plan.objects.size(), "object")});
  const std::string skipped =
      enumerated({counted_if_any(plan.skipped_tensors, "tensor"), counted_if_any(plan.skipped_objects, "object")});
  print(fmt::format("dry run: {} for {}, nothing written{}{}\n", entries, counted(plan.ranks, "rank"),
                    skipped.empty() ? "" : "; skipped " + skipped,
                    plan.excluded == 0 ? "" : "; excluded " + counted(plan.excluded, "entry", "entries")));
  return done;
}

result<void> parse_rules(arguments& given) {
  for (const std::string& text : given.places) {
    auto rule = parse_placement_rule(text);
    if (!rule) return rule.error();
    given.options.place.push_back(std::move(*rule));
  }
  if (given.defaults.empty()) return {};
  auto placements = parse_placements(given.defaults);
  if (!placements) return placements.error();
  given.options.default_placements = std::move(*placements);
  return {};
}

int run(arguments& given, const common_options& common) {
  works_on(given.source);
  if (given.mesh.empty() == given.like.empty())
    return refuse(fail(errc::invalid_argument, "pass either --mesh (with --place) or --like"));
  if (given.like.empty()) {
    auto mesh = parse_mesh(given.mesh);
    if (!mesh) return refuse(mesh.error());
    given.options.mesh = std::move(*mesh);
    if (auto parsed = parse_rules(given); !parsed) return refuse(parsed.error());
  }
  auto reader = open_source(given.source, common);
  if (!reader) return report(reader.error());
  if (given.dequantize) {
    reader = dequantized(*std::move(reader), {.check_sums = true});
    if (!reader) return report(reader.error());
  }
  if (given.mapping.is_given()) {
    reader = apply_mappings(*std::move(reader), given.mapping, given.source);
    if (!reader) return report(reader.error());
  }
  std::unique_ptr<checkpoint_reader> like;
  if (!given.like.empty()) {
    auto opened = open_checkpoint(
        given.like, {.limits = read_limits{}.times(common.limit_factor), .within = time_limit_of(common)});
    if (!opened) return report(opened.error());
    like = std::move(*opened);
    given.options.like = like.get();
  }
  auto selection = given.selection.compile();
  if (!selection) {
    if (!given.dry_run) return print_report(selection.error(), given.destination, target_format::dcp);
    reshard_plan refused;
    refused.problems.push_back(selection.error());
    return print_plan(refused);
  }
  given.options.selection = *std::move(selection);
  given.options.threads = common.threads;
  if (given.dry_run) return print_plan(plan_reshard(**reader, given.options));
  given.options.within = time_limit_of(common);
  given.options.cancel = common.cancel;
  const unwinding_on_signals unwinding;
  progress_bar bar((*reader)->contents().tensor_bytes());
  given.options.progress = [&bar](std::int64_t bytes) { bar.advance(bytes); };
  return print_report(reshard(**reader, given.destination, given.options), given.destination, target_format::dcp);
}

}  // namespace

void add_reshard(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand(
      "reshard", "Write a checkpoint as DCP for another mesh. Each rank's bytes go to a file of their own");
  command->footer(
      "shardmesh reshard CKPT NEW --mesh dp=2,tp=4 --place '.*=S(0),R'\n"
      "shardmesh reshard CKPT NEW --mesh 8 --place '.*=S(0)' --dry-run\n"
      "shardmesh reshard CKPT NEW --like OTHER");
  command
      ->add_option(
          "SRC", given->source,
          "A checkpoint of any format that shardmesh reads: DCP, .pt, safetensors, Hugging Face, GGUF, .npz, and more")
      ->required();
  command->add_option("DST", given->destination, "The DCP folder to write")->required();
  command->add_option("--mesh", given->mesh, "The new mesh, such as 3 or dp=2,tp=4")->type_name("MESH");
  command
      ->add_option(
          "--place", given->places,
          "Placements of the keys that match RE, one per mesh dimension: S(d), SS(d,k), SG(d,n:n:n), or R. The "
          "first rule that matches a key decides")
      ->type_name("RE=S(0),R")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--default", given->defaults, "Placements of the keys that no rule matches")
      ->type_name("R,R")
      ->default_str("R everywhere, with a note");
  command->add_flag_callback(
      "--no-optimizer-follow", [given] { given->options.optimizer_follows = false; },
      "Do not give optimizer state the placement of its parameter");
  command->add_option("--like", given->like, "Take the boxes and ranks of all tensors from another checkpoint")
      ->type_name("CKPT")
      ->check(some_path());
  command
      ->add_flag("--allow-shape-mismatch", given->options.allow_shape_mismatch,
                 "With --like: cut tensors of another shape at the end, or fill them with zeros (padded "
                 "vocabularies), each with a note")
      ->needs("--like");
  command->add_flag("--skip-unsupported", given->options.skip_unsupported,
                    "Drop tensors that cannot be cut or written, and objects that hold such tensors");
  add_dequantize_option(*command, given->dequantize);
  add_json_option(*command);
  command->add_flag("--dry-run", given->dry_run, "Report the contents of each rank's file, but write nothing");
  add_saving_options(*command, given->options.overwrite, given->options.durable, given->options.memory_bytes);
  add_selection_options(*command, given->selection);
  add_mapping_options(*command, given->mapping);
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
