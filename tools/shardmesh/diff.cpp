// SPDX-License-Identifier: Apache-2.0
// `shardmesh diff`: compares two checkpoints of any formats.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <range/v3/view/take.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "opening.hpp"
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
  std::string left, right;
  bool json = false;
  std::int64_t limit = -1;  // -1: the default
  diff_options options;
  selection_arguments selection;
};

void write(json_writer& out, const key_difference& d) {
  out.begin_object().member("key", d.key).member("kind", name(d.kind)).member("text", d.text);
  if (d.kind == difference_kind::values)
    out.member("different", d.different)
        .member("elements", d.elements)
        .key("first_index")
        .list(d.first_index)
        .member("largest_difference", fmt::format("{}", d.largest));
  out.end_object();
}

// Writes null if unreadable entries are the only differences.
void write_equality(json_writer& out, const diff_report& report) {
  out.key("equal");
  for (const key_difference& d : report.differences)
    if (d.kind != difference_kind::unreadable) return static_cast<void>(out.value(false));
  if (report.problems.empty())
    out.value(true);
  else
    out.null();
}

// "3 keys differ: 2 values, 1 shape".
std::string summary(const std::vector<key_difference>& differences) {
  std::map<std::string_view, std::int64_t> by_kind;
  std::set<std::string_view> keys;
  for (const key_difference& d : differences) ++by_kind[name(d.kind)], keys.insert(d.key);
  std::string text = fmt::format("{} {}: ", counted(keys.size(), "key"), keys.size() == 1 ? "differs" : "differ");
  std::string_view separator;
  for (const auto& [kind, count] : by_kind) {
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

// The numbers of tensors that no entry names, and which are therefore not compared: left side, right side.
using unread_counts = std::array<std::int64_t, 2>;

// "; not read, so not compared: 3 tensors of a.pt and 1 tensor of b.pt"; empty when there are none.
std::string unread_text(const unread_counts& unread, const arguments& given) {
  const auto of = [](std::int64_t count, const std::string& path) {
    return count == 0 ? std::string() : counted(count, "tensor") + " of " + escaped(path);
  };
  const std::string text = enumerated({of(unread[0], given.left), of(unread[1], given.right)});
  return text.empty() ? text : "; not read, so not compared: " + text;
}

std::string line_of(const key_difference& d) {
  return fmt::format("{}: {}", escaped(d.key), escaped(d.text));
}

// The first problems are the unreadable differences, in the same order; their lines are already printed.
void write_problems(json_writer& out, const diff_report& outcome) {
  auto unreadable = outcome.differences.begin();
  out.begin_list();
  for (const error& problem : outcome.problems) {
    unreadable = std::find_if(unreadable, outcome.differences.end(),
                              [](const key_difference& d) { return d.kind == difference_kind::unreadable; });
    if (unreadable == outcome.differences.end())
      write(out, problem);
    else
      write(out, problem, line_of(*unreadable++));
  }
  out.end_list();
}

void print_json(const diff_report& outcome, std::int64_t limit, const unread_counts& unread,
                const std::vector<std::string>& notes) {
  const auto shown = std::min(outcome.differences.size(), static_cast<std::size_t>(limit));
  json_writer out;
  out.begin_object().member("ok", outcome.problems.empty());
  write_equality(out, outcome);
  out.key("differences").begin_list();
  for (std::size_t i = 0; i < shown; ++i) write(out, outcome.differences[i]);
  out.end_list().member("more_differences", outcome.differences.size() - shown).key("problems");
  write_problems(out, outcome);
  out.member("tensors", outcome.tensors)
      .member("objects", outcome.objects)
      .member("bytes", outcome.bytes)
      .key("unread_tensors")
      .list(unread)
      .key("notes")
      .list(notes)
      .end_object()
      .finish();
}

void print_text(const diff_report& outcome, std::int64_t limit) {
  const auto shown = std::min(outcome.differences.size(), static_cast<std::size_t>(limit));
  for (const key_difference& d : outcome.differences | ranges::views::take(shown)) print_line(line_of(d));
  if (shown < outcome.differences.size())
    print_line(fmt::format("... and {}", counted(outcome.differences.size() - shown, "more difference")));
}

int run(arguments& given, const common_options& common) {
  works_on(given.left);
  auto left = open_source(given.left, common);
  if (!left) return report(left.error());
  works_on(given.right);
  auto right = open_source(given.right, common);
  if (!right) return report(right.error());
  works_on(given.left);
  auto selection = given.selection.compile();
  if (!selection) return report(selection.error());
  given.options.selection = *std::move(selection);
  given.options.threads = common.threads;
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
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max(), lines = 100;
  print_text(*outcome, given.limit < 0 ? lines : given.limit == 0 ? all : given.limit);
  if (given.json)
    print_json(*outcome, given.limit <= 0 ? all : given.limit, unread, notes);
  else if (!outcome->differences.empty() || problems.empty())
    print(fmt::format("{}{}{}\n",
                      outcome->differences.empty() ? "equal: " : summary(outcome->differences) + "; compared ",
                      compared_text(*outcome), unread_text(unread, given)));
  int status = outcome->differences.empty() && problems.empty() ? done : problem;
  for (const error& e : problems)
    if (status_of(e) == not_completed) status = not_completed;
  return status;
}

}  // namespace

void add_diff(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare two checkpoints of any formats: names, dtypes, shapes, values, and objects");
  command->footer(
      "shardmesh diff CKPT model.safetensors --no-optimizer\n"
      "shardmesh diff OLD NEW --tolerance 1e-6 --ignore-dtype");
  command->add_option("A", given->left, "The left checkpoint")->required();
  command->add_option("B", given->right, "The right checkpoint")->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command
      ->add_option(
          "--tolerance", given->options.tolerance,
          "Accept values with |a-b| <= T + T*|b|. Otherwise, bits must be equal, but NaN equals NaN, and -0 equals 0")
      ->type_name("T")
      ->check(tolerance());
  command->add_option("--limit", given->limit, "List at most N differences and count the rest; 0 lists all")
      ->default_str("100; all with --json")
      ->type_name("N")
      ->check(whole_number());
  command->add_flag("--layout", given->options.layout, "Also compare how tensors are cut into chunks");
  command->add_flag("--ignore-dtype", given->options.ignore_dtype, "Compare values even if the dtypes differ");
  add_selection_options(*command, given->selection);
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
