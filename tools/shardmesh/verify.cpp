// SPDX-License-Identifier: Apache-2.0
// shardmesh verify: is the checkpoint whole?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "command.hpp"
#include "console.hpp"
#include "leftovers.hpp"
#include "opening.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string path;
  bool json = false, quick = false, strict = false;
};

void print_json(const verify_report& report, bool strict) {
  print(fmt::format(
      R"({{"ok":{},"problems":[{}],"unnamed_problems":{},"warnings":[{}],"chunks":{},"objects":{},"bytes":{},"checked_bytes":{},"unchecked_chunks":{},"unchecked_objects":{},"globals":[{}]}})"
      "\n",
      report.ok() && !(strict && !report.warnings.empty()), to_json(report.problems), report.more_problems,
      to_json(report.warnings), report.chunks, report.objects, report.bytes, report.checked_bytes,
      report.unchecked_chunks, report.unchecked_objects, to_json(report.globals)));
}

// What no checksum speaks for; empty when there is nothing of it.
std::string unchecked(const verify_report& report) {
  std::string text;
  if (report.unchecked_chunks > 0)
    text += fmt::format("; {} of {} chunks have no checksum", report.unchecked_chunks, report.chunks);
  if (report.unchecked_objects > 0)
    text += fmt::format("; {} of {} objects have no checksum", report.unchecked_objects, report.objects);
  return text;
}

int run(const arguments& given, const common_options& common) {
  works_on(given.path);
  const read_limits limits = read_limits{}.times(common.limit_factor);
  auto reader = open_source(given.path, common);
  verify_report report;
  if (reader) {
    report = verify(**reader, {.quick = given.quick, .threads = common.threads, .limits = limits});
  } else {
    // What cannot be read can still name things: Python runs a damaged pickle up to its defect.
    report.problems.push_back(reader.error());
    report.globals = find_globals(given.path, nullptr, {.threads = common.threads, .limits = limits});
    report.warnings = warnings_of(report.globals, given.path);
  }
  if (given.json) print_json(report, given.strict);
  for (const error& e : report.problems) print_problem(e);
  if (report.more_problems > 0) print_line(fmt::format("... and {} more problems", report.more_problems));
  for (const error& e : report.warnings) print_warning(e);
  print_notes(leftover_notes(given.path));
  if (!reader) return status_of(reader.error());
  int status = report.ok() && !(given.strict && !report.warnings.empty()) ? done : problem;
  for (const error& e : report.problems)
    if (status_of(e) == not_completed) status = not_completed;
  if (!given.json && status == done)
    print(fmt::format("{}: ok: {} chunks and {} objects, {}; checksums compared over {}{}{}\n", escaped(given.path),
                      report.chunks, report.objects, human_bytes(report.bytes), human_bytes(report.checked_bytes),
                      unchecked(report),
                      report.warnings.empty() ? "" : fmt::format("; {} warnings", report.warnings.size())));
  return status;
}

}  // namespace

void add_verify(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("verify",
                         "Check that a checkpoint is whole: every chunk present, readable, of the declared\n"
                         "dtype, shape and storage, without overlap or gap, and unchanged where checksums exist");
  command
      ->add_option("PATH", given->path,
                   "A checkpoint of any format that is read (DCP, .pt, safetensors, Hugging Face, DeepSpeed, ...)")
      ->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command->add_flag("--quick", given->quick, "Open every item, but read no tensor bytes (no checksums)");
  command->add_flag("--strict", given->strict,
                    "Warnings count as problems (exit 1): files that an interrupted save left, and names in pickles\n"
                    "that are not plain data, which Python would look up and may call");
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
