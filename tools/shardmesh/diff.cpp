// SPDX-License-Identifier: Apache-2.0
// `shardmesh diff`: compares two checkpoints of any formats.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <range/v3/view/take.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "comparing.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "diff_json.hpp"
#include "json_writer.hpp"
#include "list_limit.hpp"
#include "mapping_options.hpp"
#include "opening.hpp"
#include "output_file.hpp"
#include "page.hpp"
#include "report.hpp"
#include "selection_options.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.tree;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string left, right, html;
  bool json = false, force = false;
  list_limit limit;
  diff_options options;
  selection_arguments selection;
  mapping_arguments mapping;
};

// "3 keys differ: 2 values, 1 shape".
std::string summary(const std::vector<key_difference>& differences) {
  const difference_counts counts = counts_of(differences);
  std::string text = fmt::format("{} {}: ", counted(counts.keys, "key"), counts.keys == 1 ? "differs" : "differ");
  std::string_view separator;
  for (const auto& [kind, count] : counts.by_kind) {
    text += fmt::format("{}{} {}", separator, count, kind);
    separator = ", ";
  }
  return text;
}

// "12 tensors (3.4 KiB) and 2 objects"
std::string compared_text(const diff_report& outcome) {
  return enumerated({fmt::format("{} ({})", counted(outcome.tensors, "tensor"), human_bytes(outcome.bytes)),
                     counted_if_any(outcome.objects, "object")});
}

// "; not read, so not compared: 3 tensors of a.pt and 1 tensor of b.pt"; empty when there are none.
std::string unread_text(const unread_counts& unread, const arguments& given) {
  const auto of = [](std::int64_t count, const std::string& path) {
    return count == 0 ? std::string() : counted(count, "tensor") + " of " + escaped(path);
  };
  const std::string text =
      enumerated({of(unread[0], printable_url(given.left)), of(unread[1], printable_url(given.right))});
  return text.empty() ? text : "; not read, so not compared: " + text;
}

void print_json(const compared_checkpoints& compared, const arguments& given) {
  json_writer out;
  write_document(out, compared, {.differences = given.limit.most(std::numeric_limits<std::size_t>::max())});
}

// The page holds the document that --json prints, or the beginning of a document that is too large for a browser.
int print_page(const compared_checkpoints& compared, const arguments& given, output_file& destination) {
  diff_limits most{.problems = 1000, .notes = 1000};
  most.differences = given.limit.most(100'000);
  if (given.limit.given != 0) most.difference_bytes = 64 << 20;
  std::string document;
  json_writer out([&](const std::string& text) { document += text; });
  write_document(out, compared, most);
  return destination.write(make_page(compared.left + " and " + compared.right,
                                     {"elements.js", "page_state.js", "table.js", "diff.js"}, document));
}

void print_text(const diff_report& outcome, std::size_t limit) {
  const std::size_t shown = std::min(outcome.differences.size(), limit);
  for (const key_difference& d : outcome.differences | ranges::views::take(shown)) print_line(line_of(d));
  if (shown < outcome.differences.size())
    print_line(fmt::format("... and {}", counted(outcome.differences.size() - shown, "more difference")));
}

int run(arguments& given, const common_options& common) {
  works_on(given.left);
  auto page = output_file::open("--html", given.html, given.force, {given.left, given.right});
  if (!page) return report(page.error());
  auto left = open_source(given.left, common);
  if (!left) return report(left.error());
  if (given.mapping.is_given()) {
    left = apply_mappings(*std::move(left), given.mapping, given.left);
    if (!left) return report(left.error());
  }
  works_on(given.right);
  auto right = open_source(given.right, common);
  if (!right) return report(right.error());
  works_on(given.left);
  auto selection = given.selection.compile();
  if (!selection) return report(selection.error());
  given.options.selection = *std::move(selection);
  given.options.threads = common.threads;
  given.options.within = time_limit_of(common);
  auto outcome = diff(**left, **right, given.options);
  if (!outcome) return report(outcome.error());
  std::vector<std::string> notes = std::move(outcome->notes);
  const unread_counts unread{(*left)->unread_tensors(), (*right)->unread_tensors()};
  for (const auto* reader : {left->get(), right->get()})
    for (const std::string& note : reader->notes())
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  print_notes(notes);
  // An unreadable entry is a difference itself; the comparison continues.
  std::vector<error>& problems = outcome->problems;
  for (const auto* reader : {left->get(), right->get()})
    for (const error& e : reader->problems()) {
      print_problem(e);
      problems.push_back(e);
    }
  const std::string left_name = printable_url(given.left), right_name = printable_url(given.right);
  const compared_checkpoints compared{*outcome, left_name, right_name, unread, notes};
  print_text(*outcome, given.limit.most(100));
  if (*page)
    if (const int written = print_page(compared, given, **page); written != done) return written;
  if (given.json)
    print_json(compared, given);
  else if (!*page && (!outcome->differences.empty() || problems.empty()))
    print(fmt::format("{}{}{}\n",
                      outcome->differences.empty() ? "equal: " : summary(outcome->differences) + "; compared ",
                      compared_text(*outcome), unread_text(unread, given)));
  return std::max<int>(outcome->differences.empty() ? done : problem, status_of_findings(problems));
}

}  // namespace

int compare_checkpoints(const std::string& left, const std::string& right, bool json, const common_options& common) {
  arguments given;
  given.left = left;
  given.right = right;
  given.json = json;
  return run(given, common);
}

void add_diff(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare two checkpoints of any formats: names, dtypes, shapes, values, and objects");
  command->footer(
      "shardmesh diff CKPT model.safetensors --no-optimizer\n"
      "shardmesh diff OLD NEW --tolerance 1e-6 --ignore-dtype\n"
      "shardmesh diff OLD NEW --html page.html");
  command->add_option("A", given->left, "The left checkpoint")->required();
  command->add_option("B", given->right, "The right checkpoint")->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command
      ->add_option(
          "--tolerance", given->options.tolerance,
          "Accept values with |a-b| <= T + T*|b|. Otherwise, bits must be equal, but NaN equals NaN, and -0 equals 0")
      ->type_name("T")
      ->check(tolerance());
  command->add_option("--limit", given->limit.given, "List at most N differences and count the rest; 0 lists all")
      ->default_str("100; all with --json; 100000 with --html")
      ->type_name("N")
      ->transform(whole_number());
  command->add_flag("--layout", given->options.layout, "Also compare how tensors are cut into chunks");
  command->add_flag("--ignore-dtype", given->options.ignore_dtype, "Compare values even if the dtypes differ");
  command->add_option("--html", given->html, "Write a page for a browser to FILE; it needs no network")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(*command, given->force, "--html");
  add_selection_options(*command, given->selection);
  add_mapping_options(*command, given->mapping, "A");
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
