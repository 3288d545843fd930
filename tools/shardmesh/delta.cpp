// SPDX-License-Identifier: Apache-2.0
// `shardmesh delta`: writes the differences between two checkpoints, and applies them to the first one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "action_options.hpp"
#include "cache_option.hpp"
#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "opening.hpp"
#include "report.hpp"
#include "saving.hpp"
#include "selection_options.hpp"
#include "signals.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.core;
import shardmesh.delta;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string action, base, other, destination;
  bool skip_unsupported = false;
  delta_options made;
  convert_options applied;
};

void print_json(const delta_report& report) {
  json_writer out;
  out.begin_object().member("ok", true);
  write_problems(out, {});
  out.key("notes")
      .list(report.notes)
      .member("tensors", report.tensors)
      .member("bytes", report.bytes)
      .member("objects", report.objects)
      .member("unchanged", report.unchanged)
      .member("changed", report.changed)
      .member("added", report.added)
      .member("removed", report.removed)
      .member("delta_bytes", report.delta_bytes)
      .member("skipped_tensors", report.skipped_tensors)
      .member("skipped_objects", report.skipped_objects)
      .end_object()
      .finish();
}

// "out.delta: 3.2 MiB for 4 tensors (1.0 GiB) and 2 objects: 1 changed, 2 added, 1 unchanged, 0 removed"
std::string written_line(const delta_report& report, const std::string& destination) {
  std::string line =
      fmt::format("{}: {} for {}: {} changed, {} added, {} unchanged, {} removed", escaped(destination),
                  human_bytes(report.delta_bytes),
                  enumerated({fmt::format("{} ({})", counted(report.tensors, "tensor"), human_bytes(report.bytes)),
                              counted_if_any(report.objects, "object")}),
                  report.changed, report.added, report.unchanged, report.removed);
  const std::string skipped =
      enumerated({counted_if_any(report.skipped_tensors, "tensor"), counted_if_any(report.skipped_objects, "object")});
  if (!skipped.empty()) line += "; skipped " + skipped;
  return line + "\n";
}

int make(arguments& given, const common_options& common) {
  works_on(given.base);
  const auto base = open_source(given.base, common);
  if (!base) return report(base.error());
  works_on(given.other);
  const auto next = open_source(given.other, common);
  if (!next) return report(next.error());
  progress_bar bar((*next)->contents().tensor_bytes());
  given.made.progress = [&bar](std::int64_t bytes) { bar.advance(bytes); };
  given.made.skip_unsupported = given.skip_unsupported;
  given.made.overwrite = given.applied.overwrite;
  given.made.durable = given.applied.durable;
  given.made.threads = common.threads;
  given.made.within = time_limit_of(common);
  given.made.cancel = common.cancel;
  const unwinding_on_signals unwinding;
  const auto written = save_delta(**base, **next, given.destination, given.made);
  if (!written) return report(written.error());
  print_notes(written->notes);
  if (is_json())
    print_json(*written);
  else
    print(written_line(*written, given.destination));
  return done;
}

int apply(arguments& given, const common_options& common, bool format_given) {
  set_failure_members("convert");
  works_on(given.base);
  if (!format_given) {
    const target* const format = target_by_extension(given.destination);
    if (format == nullptr)
      return refuse(fail(errc::invalid_argument, "the name does not show the format to write")
                        .with_file(given.destination)
                        .with_hint(fmt::format("pass {}, or a name that ends in .safetensors, .pt, .gguf, or .npz",
                                               target_names("--to "))));
    given.applied.format = format->format;
  }
  auto base = open_source(given.base, common);
  if (!base) return report(base.error());
  if (const auto apart = check_disjoint(given.destination, **base); !apart) return report(apart.error());
  works_on(given.other);
  const auto reader = open_delta(*std::move(base), given.other,
                                 {.limits = read_limits{}.times(common.limit_factor), .within = time_limit_of(common)});
  if (!reader) return report(reader.error());
  progress_bar bar((*reader)->contents().tensor_bytes());
  given.applied.progress = [&bar](std::int64_t bytes) { bar.advance(bytes); };
  given.applied.skip_unsupported = given.skip_unsupported;
  given.applied.threads = common.threads;
  given.applied.within = time_limit_of(common);
  given.applied.cancel = common.cancel;
  const unwinding_on_signals unwinding;
  return print_report(convert(**reader, given.destination, given.applied), given.destination, given.applied.format);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const target& format : targets()) names.emplace_back(format.name);
  return names;
}

const std::vector<action_options>& options_of_actions() {
  static const std::vector<action_options> all{{{"--level"}, {"make"}}, {{"--to", "--memory"}, {"apply"}}};
  return all;
}

int run(const CLI::App& command, arguments& given, const common_options& common) {
  if (const auto used = check_action_options(command, given.action, options_of_actions()); !used)
    return refuse(used.error());
  return given.action == "make" ? make(given, common) : apply(given, common, command.get_option("--to")->count() > 0);
}

}  // namespace

void add_delta(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand(
      "delta", "Write the differences between two checkpoints to a file, and apply such a file to the first one");
  command->footer(
      "shardmesh delta make step-100 step-200 200.delta\n"
      "shardmesh delta make OLD NEW new.delta --level -7\n"
      "shardmesh delta apply step-100 200.delta step-200 --to dcp");
  command
      ->add_option("ACTION", given->action,
                   "make: write to OUT the differences between BASE and the checkpoint OTHER. apply: write to OUT the "
                   "checkpoint that BASE and the delta OTHER give")
      ->required()
      ->check(one_of({"make", "apply"}));
  command->add_option("BASE", given->base, "The old checkpoint; with apply, a copy of it in any format")
      ->required()
      ->check(some_path());
  command->add_option("OTHER", given->other, "make: the new checkpoint. apply: the delta")
      ->required()
      ->check(some_path());
  command->add_option("OUT", given->destination, "make: the delta to write. apply: the file or folder to write")
      ->required()
      ->check(some_path());
  command
      ->add_option("--level", given->made.level, "make: level of zstd, from -7 (the fastest) to 19 (the smallest file)")
      ->type_name("N")
      ->default_str("3")
      ->transform(whole_number(-7, 19));
  command
      ->add_option_function<std::string>(
          "--to", [given](const std::string& text) { given->applied.format = find_target(text)->format; },
          "apply: format of OUT, unless OUT ends in .safetensors, .pt, .gguf, or .npz")
      ->check(one_of(format_names()))
      ->type_name("FORMAT");
  command->add_flag("--skip-unsupported", given->skip_unsupported,
                    "Drop tensors and objects that OUT cannot hold, and name them in notes");
  add_saving_options(*command, given->applied.overwrite, given->applied.durable, given->applied.memory_bytes);
  add_json_option(*command);
  add_cache_option(*command);
  command->get_option("--memory")->description("apply: staging memory of all threads together");
  command->callback([command, given, &call] { call.status = run(*command, *given, call.common); });
}

}  // namespace tool
