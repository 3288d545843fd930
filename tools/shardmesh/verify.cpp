// SPDX-License-Identifier: Apache-2.0
// `shardmesh verify`: checks whether a checkpoint is whole.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "leftovers.hpp"
#include "opening.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.storage;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string path;
  std::vector<std::string> allow_globals;
  bool json = false, quick = false, strict = false;
};

void print_json(const verify_report& report, const std::vector<std::string>& notes, const global_counts& names,
                bool strict) {
  json_writer out;
  out.begin_object().member("ok", report.ok() && !(strict && !report.warnings.empty())).key("problems");
  write(out, report.problems);
  out.member("more_problems", report.more_problems).key("warnings");
  write(out, report.warnings);
  out.key("notes").list(notes);
  out.member("chunks", report.chunks)
      .member("objects", report.objects)
      .member("bytes", report.bytes)
      .member("checked_bytes", report.checked_bytes)
      .member("unchecked_chunks", report.unchecked_chunks)
      .member("unchecked_objects", report.unchecked_objects)
      .member("unread_tensors", report.unread_tensors)
      .key("dangerous_globals")
      .list(names.dangerous)
      .member("unknown_globals", names.unknown)
      .key("globals");
  write(out, report.globals);
  out.end_object().finish();
}

std::string count_of_unknown(const global_counts& names) {
  return counted(names.unknown, "unknown name") + " in pickles";
}

// Dangerous names go into the first line: a user may read no other.
void print_dangerous(const std::string& path, const global_counts& names) {
  constexpr std::size_t most_named = 10;
  if (names.dangerous.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.dangerous.size(), most_named); ++i)
    text += (i == 0 ? "" : ", ") + escaped(names.dangerous[i]);
  if (names.dangerous.size() > most_named) text += fmt::format(" and {} more", names.dangerous.size() - most_named);
  print_line(fmt::format("{}: dangerous to load: its pickles name {}{}", escaped(path), text,
                         names.unknown > 0 ? "; " + count_of_unknown(names) : std::string()));
}

// Returns a text that counts the chunks and objects without a checksum; empty if there are none.
std::string unchecked(const verify_report& report) {
  const auto told = [](std::int64_t count, std::int64_t all, std::string_view what) {
    return count == 0
               ? std::string()
               : fmt::format("; {} of {} {} no checksum", count, counted(all, what), count == 1 ? "has" : "have");
  };
  return told(report.unchecked_chunks, report.chunks, "chunk") +
         told(report.unchecked_objects, report.objects, "object");
}

// Returns a text that counts the tensors that no entry names; empty if there are none.
std::string unread(const verify_report& report) {
  return report.unread_tensors == 0
             ? std::string()
             : fmt::format("; {} not read", counted(report.unread_tensors, "tensor is", "tensors are"));
}

// "ckpt: ok: 4 chunks and 1 object, 3.2 KiB; checksums compared over 3.2 KiB"
std::string good_line(const verify_report& report, const global_counts& names, const std::string& path) {
  return fmt::format("{}: ok: {}, {}; checksums compared over {}{}{}{}{}\n", escaped(path),
                     enumerated({counted(report.chunks, "chunk"), counted_if_any(report.objects, "object")}),
                     human_bytes(report.bytes), human_bytes(report.checked_bytes), unchecked(report), unread(report),
                     names.unknown > 0 ? "; " + count_of_unknown(names) : std::string(),
                     report.warnings.empty() ? "" : "; " + counted(report.warnings.size(), "warning"));
}

int run(const arguments& given, const common_options& common) {
  works_on(given.path);
  auto reader = open_source(given.path, common);
  const verify_options options{.quick = given.quick,
                               .threads = common.threads,
                               .limits = read_limits{}.times(common.limit_factor),
                               .allow_globals = given.allow_globals,
                               .within = time_limit_of(common)};
  if (!reader && detail::is_limit_error(reader.error())) return tool::report(reader.error());
  const result<verify_report> checked =
      reader ? verify(**reader, options) : verify_unreadable(given.path, reader.error(), options);
  if (!checked) return tool::report(checked.error());
  const verify_report& report = *checked;
  const global_counts names = count_globals(report.globals, given.allow_globals);
  print_dangerous(printable_url(given.path), names);
  const std::vector<std::string> notes = reader ? (*reader)->notes() : std::vector<std::string>();
  if (given.json) print_json(report, notes, names, given.strict);
  for (const error& e : report.problems) print_problem(e);
  print_more_problems(report.more_problems);
  for (const error& e : report.warnings) print_warning(e);
  print_notes(notes);
  // A server that has failed is not asked once more.
  if (reader || !is_url(given.path) || reader.error().code != errc::io) print_notes(leftover_notes(given.path));
  if (!reader) return status_of(reader.error());
  const bool is_good = report.ok() && !(given.strict && !report.warnings.empty());
  const int status = std::max<int>(is_good ? done : problem, status_of_findings(report.problems));
  if (!given.json && status == done) print(good_line(report, names, printable_url(given.path)));
  return status;
}

}  // namespace

void add_verify(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("verify",
                         "Check that a checkpoint is complete and undamaged. Every chunk must be present, readable, "
                         "and of the declared dtype, shape, and storage, without overlaps or gaps; and it must match "
                         "its checksum, if it has one");
  command->footer(
      "shardmesh verify CKPT\n"
      "shardmesh verify CKPT --strict --json");
  command
      ->add_option(
          "PATH", given->path,
          "A checkpoint of any format that shardmesh reads: DCP, .pt, safetensors, Hugging Face, GGUF, .npz, and more")
      ->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command->add_flag("--quick", given->quick, "Open every item, but read no tensor bytes (no checksums)");
  command->add_flag("--strict", given->strict,
                    "Treat warnings as problems (exit status 1): leftovers of interrupted saves, and unknown names in "
                    "pickles, which Python would look up and may call");
  command
      ->add_option("--allow-globals", given->allow_globals,
                   "Accept this name in pickles, such as functools.partial. Otherwise, dangerous names are problems, "
                   "and so are unknown ones with --strict")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
